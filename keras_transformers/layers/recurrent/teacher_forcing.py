"""Teacher forcing: whether a decoder in training is fed the target's tokens or its own."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["TeacherForcing"]


@keras.saving.register_keras_serializable(PACKAGE)
class TeacherForcing(keras.layers.Layer):
    """Chooses the steps that are fed the target's token: scheduled sampling (Bengio et al. 2015).

    In a model's graph it passes the target's ids through unchanged; in training the model calls
    `choose`. The ratio is a non-trainable weight: it counts as one parameter, is saved with the
    model, and callbacks can `assign` it at any time without retracing.

    Args:
        ratio: probability, 0 to 1, that a step is fed the target's token, not the model's own.
        seed: seed of the choices.

    Raises:
        ValueError: the ratio is outside [0, 1].
    """

    def __init__(self, ratio: float, *, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_ratio(ratio)
        self.initial_ratio = ratio
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Shape) -> None:
        """Creates the ratio."""
        self.ratio = self.add_weight(
            name="ratio",
            shape=(),
            initializer=keras.initializers.Constant(self.initial_ratio),
            trainable=False,
            dtype="float32",
            autocast=False,
        )

    def call(self, token_ids: Tensor) -> Tensor:
        """Returns the ids unchanged."""
        return token_ids

    def choose(self, length: Tensor, batch: Tensor) -> Tensor:
        """Draws booleans (length, batch), True for the target's token; step 0 is always True."""
        draws = keras.random.uniform((length, batch), seed=self.seed_generator)
        return ops.logical_or(draws < self.ratio, ops.arange(length)[:, None] == 0)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"ratio": self.initial_ratio, "seed": self.seed}


def check_ratio(ratio: float) -> None:
    """Raises ValueError unless the teacher forcing ratio is between 0 and 1."""
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(
            f"teacher_forcing={ratio} is not between 0 and 1: 0 always feeds the model's own "
            "tokens, 1 always the target's"
        )
