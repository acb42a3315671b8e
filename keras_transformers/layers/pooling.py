"""Which positions of a sequence count: masks and picks."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE

__all__ = ["FirstTokenPooler", "GatherPositions", "PaddingMask"]


@keras.saving.register_keras_serializable(PACKAGE)
class FirstTokenPooler(keras.layers.Dense):
    """BERT's pooler: a dense layer on the first position, [CLS].

    The arguments are those of `keras.layers.Dense`.
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Maps (batch, length, features) to (batch, units)."""
        return super().call(inputs[:, 0], training=training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """(batch, units)."""
        return (input_shape[0], self.units)


@keras.saving.register_keras_serializable(PACKAGE)
class GatherPositions(keras.layers.Layer):
    """Takes some positions of each sequence."""

    def call(self, inputs: Any, positions: Any) -> Any:
        """Vectors (batch, length, hidden) at `positions` (batch, n): (batch, n, hidden)."""
        batch, length, hidden = ops.shape(inputs)
        rows = ops.reshape(inputs, (-1, hidden))  # (batch * length, hidden)
        starts = ops.arange(batch, dtype=positions.dtype) * length
        return ops.take(rows, positions + starts[:, None], axis=0)

    def compute_output_shape(self, inputs_shape: Any, positions_shape: Any) -> Any:
        """(batch, n, hidden)."""
        return (*positions_shape, inputs_shape[-1])


@keras.saving.register_keras_serializable(PACKAGE)
class PaddingMask(keras.layers.Layer):
    """Token ids to a padding mask: True at real tokens.

    Args:
        pad_token_id: the id that fills up rows.
    """

    def __init__(self, pad_token_id: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pad_token_id = pad_token_id

    def call(self, token_ids: Any) -> Any:
        """Maps (batch, length) ids to (batch, length) booleans."""
        return ops.not_equal(token_ids, self.pad_token_id)

    def compute_output_spec(self, token_ids: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        return keras.KerasTensor(token_ids.shape, dtype="bool")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"pad_token_id": self.pad_token_id}
