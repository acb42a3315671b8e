"""Layers for two task heads: multiple choice and span extraction."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.masks import MASKED_SCORE

__all__ = ["ChoicesToRows", "RowsToChoices", "StartsAndEnds"]


@keras.saving.register_keras_serializable(PACKAGE)
class ChoicesToRows(keras.layers.Layer):
    """Turns each choice into a row of the batch, so that an encoder reads it separately.

    Example:
        >>> ChoicesToRows()(keras.ops.ones((2, 4, 7), dtype="int32")).shape
        TensorShape([8, 7])
    """

    def call(self, inputs: Any) -> Any:
        """Maps (batch, choices, ...) to (batch * choices, ...)."""
        batch, choices, *rest = ops.shape(inputs)
        return ops.reshape(inputs, (batch * choices, *rest))

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((None, *inputs.shape[2:]), dtype=inputs.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class RowsToChoices(keras.layers.Layer):
    """Groups the scores of rows by example again, undoing `ChoicesToRows`."""

    def call(self, scores: Any, choices: Any) -> Any:
        """Maps scores (batch * choices, 1) to (batch, choices), the first two axes of `choices`."""
        return ops.reshape(scores, ops.shape(choices)[:2])

    def compute_output_spec(self, scores: Any, choices: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(choices.shape[:2], dtype=scores.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class StartsAndEnds(keras.layers.Layer):
    """Splits logits into start and end logits, and sets them to -1e9 at padding."""

    def call(self, logits: Any, padding_mask: Any) -> Any:
        """Maps (batch, length, 2) and a mask (batch, length) to two tensors (batch, length)."""
        logits = ops.where(padding_mask[..., None], logits, MASKED_SCORE)
        return logits[..., 0], logits[..., 1]

    def compute_output_spec(self, logits: Any, padding_mask: Any) -> Any:
        """Returns the shapes and dtype of `call`'s results."""
        one = keras.KerasTensor(logits.shape[:2], dtype=logits.dtype)
        return one, keras.KerasTensor(one.shape, dtype=one.dtype)
