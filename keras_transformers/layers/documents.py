"""What models that read from left to right need beside `EncoderLayer`: documents, last tokens."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import PositionEmbedding


@keras.saving.register_keras_serializable(PACKAGE)
class DocumentMask(keras.layers.Layer):
    """Keeps documents that are packed into one row from seeing each other.

    Example:
        >>> DocumentMask()(keras.ops.array([[0, 0, 1]])).numpy().astype(int)
        array([[[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]]])
    """

    def call(self, document_ids: Any) -> Any:
        """Ids (batch, length) to booleans (batch, query, key), True in the same document."""
        return ops.equal(document_ids[:, :, None], document_ids[:, None, :])

    def compute_output_spec(self, document_ids: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        batch, length = document_ids.shape
        return keras.KerasTensor((batch, length, length), dtype="bool")


@keras.saving.register_keras_serializable(PACKAGE)
class DocumentPositions(keras.layers.Layer):
    """Counts positions from the begin of each document.

    Example:
        >>> DocumentPositions()(DocumentMask()(keras.ops.array([[0, 0, 1]]))).numpy()
        array([[0, 1, 0]], dtype=int32)
    """

    def call(self, document_mask: Any) -> Any:
        """What `DocumentMask` gave, (batch, length, length), to int32 (batch, length)."""
        places = ops.arange(ops.shape(document_mask)[1])
        before = ops.logical_and(document_mask, places[None, None, :] < places[None, :, None])
        return ops.sum(ops.cast(before, "int32"), axis=-1)

    def compute_output_spec(self, document_mask: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        return keras.KerasTensor(document_mask.shape[:2], dtype="int32")


@keras.saving.register_keras_serializable(PACKAGE)
class IndexedPositionEmbedding(PositionEmbedding):
    """A `PositionEmbedding` that can be told the position of each vector; arguments as there."""

    def call(self, inputs: Any, *, positions: Any = None, start_index: Any = 0) -> Any:
        """Adds the positions' vectors.

        Args:
            inputs: vectors (batch, length, hidden).
            positions: int32 (batch, length), each below `max_sequence_length`; by default they
                count from `start_index`.
            start_index: position of the first vector of each row.

        Returns:
            (batch, length, hidden).

        Raises:
            ValueError: the length is beyond `max_sequence_length`, and no positions are given.
        """
        if positions is None:
            return super().call(inputs, start_index=start_index)
        return inputs + ops.take(ops.convert_to_tensor(self.embeddings), positions, axis=0)

    def compute_output_spec(
        self, inputs: Any, *, positions: Any = None, start_index: Any = 0
    ) -> Any:
        """The inputs' shape, in the layer's dtype."""
        return super().compute_output_spec(inputs, start_index=start_index)


@keras.saving.register_keras_serializable(PACKAGE)
class LastToken(keras.layers.Layer):
    """The vector of each row's last real token: the one that has read all others."""

    def call(self, inputs: Any, padding_mask: Any) -> Any:
        """Vectors (batch, length, hidden), mask (batch, length) to (batch, hidden).

        A row of padding alone gives its first vector.
        """
        places = ops.arange(ops.shape(inputs)[1])
        # Not `ops.max`, which refuses an empty batch.
        last = ops.argmax(ops.where(padding_mask, places[None], -1), axis=1)  # (batch,)
        return ops.squeeze(ops.take_along_axis(inputs, last[:, None, None], axis=1), axis=1)

    def compute_output_spec(self, inputs: Any, padding_mask: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        return keras.KerasTensor((inputs.shape[0], inputs.shape[2]), dtype=inputs.dtype)
