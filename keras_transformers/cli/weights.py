"""Commands that work on weight files: `average`."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional

from keras_transformers.cli.arguments import argument


@dataclass(frozen=True, kw_only=True)
class Average:
    """Average the weights of checkpoints."""

    output: Annotated[Positional[str], argument("OUTPUT")]  # file to write: .weights.h5 or .keras
    checkpoints: Annotated[
        Positional[tuple[str, ...]],
        argument("FILE [FILE ...]", "the files to average, the newest last"),
    ]

    def run(self) -> int:
        """Writes the average."""
        from keras_transformers.training.averaging import average_checkpoints

        average_checkpoints(self.checkpoints, self.output)
        print(f"{self.output}: the average of {len(self.checkpoints)} checkpoints")
        return 0
