"""What the heads of tasks need beside dense layers: choices as rows, starts and ends of spans."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE

# Takes the place of a logit: far below all of them, and finite, so that a row of padding alone
# still has a softmax, and no gradient is NaN.
_NEVER = -1e9


@keras.saving.register_keras_serializable(PACKAGE)
class ChoicesToRows(keras.layers.Layer):
    """Makes each choice a row of its own, so that an encoder reads them one by one.

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
    """Puts the scores of rows back beside each other: the inverse of `ChoicesToRows`."""

    def call(self, scores: Any, choices: Any) -> Any:
        """Scores (batch * choices, 1), and inputs (batch, choices, ...): (batch, choices)."""
        return ops.reshape(scores, ops.shape(choices)[:2])

    def compute_output_spec(self, scores: Any, choices: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        return keras.KerasTensor(choices.shape[:2], dtype=scores.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class StartsAndEnds(keras.layers.Layer):
    """Start and end logits apart, with -1e9 in the place of those of padding."""

    def call(self, logits: Any, padding_mask: Any) -> Any:
        """Maps (batch, length, 2) to two of (batch, length)."""
        logits = ops.where(padding_mask[..., None], logits, _NEVER)
        return logits[..., 0], logits[..., 1]

    def compute_output_spec(self, logits: Any, padding_mask: Any) -> Any:
        """Shapes and dtype of `call`'s results."""
        one = keras.KerasTensor(logits.shape[:2], dtype=logits.dtype)
        return one, keras.KerasTensor(one.shape, dtype=one.dtype)
