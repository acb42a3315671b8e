"""Teacher forcing: which tokens a decoder is fed in training, the target's or its own."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE

__all__ = ["TeacherForcing"]


@keras.saving.register_keras_serializable(PACKAGE)
class TeacherForcing(keras.layers.Layer):
    """Scheduled sampling (Bengio et al. 2015): how often a step is fed the target's own token.

    In a model's graph it passes the target's ids on unchanged; in training the model calls
    `choose`. The ratio is a non-trainable weight: it counts as one parameter and is saved, and a
    callback may `assign` another value at any time without a new graph.

    Args:
        ratio: probability, 0 to 1, that a step is fed the target's token and not the model's own.
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
        """Passes the ids on unchanged."""
        return token_ids

    def choose(self, length: Any, batch: Any) -> Any:
        """Draws booleans (length, batch), True for the target's token; step 0 is always True."""
        draws = keras.random.uniform((length, batch), seed=self.seed_generator)
        return ops.logical_or(draws < self.ratio, ops.arange(length)[:, None] == 0)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"ratio": self.initial_ratio, "seed": self.seed}


def check_ratio(ratio: float) -> None:
    """Raises ValueError unless the ratio of teacher forcing is from 0 to 1."""
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(
            f"teacher_forcing={ratio} is no ratio: give a number from 0, which always feeds the "
            "model's own tokens, to 1, which always feeds the target's"
        )
