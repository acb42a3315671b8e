"""Layers of two task heads: choices read as rows, and the starts and ends of spans."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.masks import MASKED_SCORE

__all__ = ["ChoicesToRows", "RowsToChoices", "StartsAndEnds"]


@keras.saving.register_keras_serializable(PACKAGE)
class ChoicesToRows(keras.layers.Layer):
    """Makes each choice a row, so that an encoder reads the choices one by one.

    Example:
        >>> ChoicesToRows()(keras.ops.ones((2, 4, 7), dtype="int32")).shape
        TensorShape([8, 7])
    """

    def call(self, inputs: Any) -> Any:
        """Maps (batch, choices, ...) to (batch * choices, ...)."""
        batch, choices, *rest = ops.shape(inputs)
        return ops.reshape(inputs, (batch * choices, *rest))

    def compute_output_spec(self, inputs: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        return keras.KerasTensor((None, *inputs.shape[2:]), dtype=inputs.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class RowsToChoices(keras.layers.Layer):
    """Puts the rows' scores side by side again: the inverse of `ChoicesToRows`."""

    def call(self, scores: Any, choices: Any) -> Any:
        """Maps scores (batch * choices, 1) to (batch, choices), the first axes of `choices`."""
        return ops.reshape(scores, ops.shape(choices)[:2])

    def compute_output_spec(self, scores: Any, choices: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        return keras.KerasTensor(choices.shape[:2], dtype=scores.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class StartsAndEnds(keras.layers.Layer):
    """Splits logits into those of starts and those of ends, and sets padding's to -1e9."""

    def call(self, logits: Any, padding_mask: Any) -> Any:
        """Maps (batch, length, 2) and a mask (batch, length) to two of (batch, length)."""
        logits = ops.where(padding_mask[..., None], logits, MASKED_SCORE)
        return logits[..., 0], logits[..., 1]

    def compute_output_spec(self, logits: Any, padding_mask: Any) -> Any:
        """Shapes and dtype of `call`'s results."""
        one = keras.KerasTensor(logits.shape[:2], dtype=logits.dtype)
        return one, keras.KerasTensor(one.shape, dtype=one.dtype)
