"""Rotary positions (Su et al. 2021, arXiv:2104.09864): queries and keys turned by their places."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE

__all__ = ["RotaryPositions"]


@keras.saving.register_keras_serializable(PACKAGE)
class RotaryPositions(keras.layers.Layer):
    """Turns queries and keys by their positions, so that scores depend on distances alone.

    Number i of the first half of a head's width and number i of the second half are a point in a
    plane, which position p turns by p * base^(-2i / head_dim), as in Hugging Face's Llama, Mistral,
    Qwen and ModernBERT. The layer has no weights.

    Args:
        base: how slowly the slowest pair turns (Hugging Face: rope_theta).

    Raises:
        ValueError: `base` is not above 1.

    Example:
        >>> turned = RotaryPositions()(keras.ops.ones((1, 1, 2, 2)), keras.ops.array([[0, 1]]))
        >>> np.round(turned[0, 0], 2)
        array([[ 1.  ,  1.  ],
               [-0.3 ,  1.38]], dtype=float32)
    """

    def __init__(self, base: float = 10_000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not base > 1:
            raise ValueError(f"base={base}: give a number above 1, such as 10000")
        self.base = base

    def call(self, heads: Any, positions: Any) -> Any:
        """Turns the vectors of each head.

        Args:
            heads: (batch, heads, length, head_dim), of even width.
            positions: integers (batch or 1, length).
        """
        width = heads.shape[-1]
        rates = self.base ** (-np.arange(0, width, 2, dtype="float32") / width)
        angles = ops.cast(positions, "float32")[:, None, :, None] * ops.convert_to_tensor(rates)
        cos, sin = (ops.cast(f(angles), heads.dtype) for f in (ops.cos, ops.sin))
        first, second = heads[..., : width // 2], heads[..., width // 2 :]
        return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def compute_output_spec(self, heads: Any, positions: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(heads.shape, dtype=heads.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"base": self.base}
