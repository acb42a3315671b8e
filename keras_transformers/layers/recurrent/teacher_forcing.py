"""Teacher forcing and its opposite: which tokens of the target a decoder is fed in training."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE


@keras.saving.register_keras_serializable(PACKAGE)
class TeacherForcing(keras.layers.Layer):
    """Scheduled sampling (Bengio et al. 2015): how often a step is fed the target's own token.

    It stands in a model's graph behind the target's ids and leaves them as they are; the model
    asks `choose` in training. The ratio is a weight, counted as one parameter and saved, which
    training does not touch: a callback may `assign` another at any time, without a new graph.

    Args:
        ratio: probability that a step is fed the target's token, not the model's own; 0 to 1.
        seed: of the choices.

    Raises:
        ValueError: the ratio is outside [0, 1].
    """

    def __init__(self, ratio: float, *, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_ratio(ratio)
        self.initial_ratio = ratio
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Any) -> None:
        """Makes the ratio."""
        self.ratio = self.add_weight(
            name="ratio",
            shape=(),
            initializer=keras.initializers.Constant(self.initial_ratio),
            trainable=False,
            dtype="float32",
            autocast=False,
        )

    def call(self, token_ids: Any) -> Any:
        """The ids as they are."""
        return token_ids

    def choose(self, length: Any, batch: Any) -> Any:
        """Draws (length, batch) booleans, True to feed the target's token, as at first steps."""
        draws = keras.random.uniform((length, batch), seed=self.seed_generator)
        return ops.logical_or(draws < self.ratio, ops.arange(length)[:, None] == 0)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"ratio": self.initial_ratio, "seed": self.seed}


def check_ratio(ratio: float) -> None:
    """Raises ValueError unless the ratio of teacher forcing is from 0 to 1."""
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(
            f"teacher_forcing={ratio} is no ratio: 1 always feeds the target's tokens, 0 always "
            "the model's own, from 0 to 1"
        )
