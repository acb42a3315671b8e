"""Commands for weights: `average` and `convert`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from keras_transformers.cli.arguments import Command, argument


@dataclass(frozen=True, kw_only=True)
class Average(Command):
    """Average the weights of a model over several files.

    Examples:
        keras-transformers average mean.weights.h5 epoch_8.weights.h5 epoch_9.weights.h5
    """

    output: Annotated[Positional[str], argument("OUTPUT")]  # file to write: .weights.h5 or .keras
    files: Annotated[
        Positional[tuple[str, ...]],
        argument("FILE [FILE ...]", "the files to average, the newest last"),
    ]

    def run(self) -> int:
        """Writes the average."""
        from keras_transformers.training.averaging import average_weights

        average_weights(self.files, self.output)
        print(f"{self.output}: the average of {len(self.files)} files")
        return 0


@dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Convert a saved pipeline or pretrained weights to another format.

    Examples:
        keras-transformers convert sentiment/ sentiment-hf/ --format huggingface
        keras-transformers convert hf://organization/name@commit model.onnx --format onnx
    """

    source: Annotated[
        Positional[str],
        argument(
            "FROM",
            "a saved pipeline, weights that keras_transformers.load takes, or "
            "hf://organization/name@commit",
        ),
    ]
    target: Annotated[
        Positional[str], argument("TO", "the folder to create, or the .onnx file to write")
    ]
    # huggingface: for transformers and, for embeddings, sentence-transformers; onnx: an encoder
    # with its head, for ONNX Runtime
    format: Literal["huggingface", "keras_transformers", "onnx"]

    def run(self) -> int:
        """Writes the weights."""
        from keras_transformers.convert import save_onnx
        from keras_transformers.files import check_new
        from keras_transformers.tasks.weights import loading, writing

        target = Path(self.target)
        if target.exists():  # loading may take long
            check_new(target)
        pipeline = loading.load(self.source)
        if self.format == "onnx":
            save_onnx(pipeline.model, target)
        else:
            writing.save(pipeline, target, format=self.format)
        print(f"{target}: {type(pipeline).__name__} in the format {self.format}")
        return 0
