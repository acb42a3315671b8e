"""Layers for two task heads: multiple choice and span extraction."""

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.masks import MASKED_SCORE
from keras_transformers.layers.tensors import Tensor

__all__ = ["ChoicesToRows", "RowsToChoices", "RowsToGroups", "StartsAndEnds"]


@keras.saving.register_keras_serializable(PACKAGE)
class ChoicesToRows(keras.layers.Layer):
    """Turns each choice into a row of the batch, so that an encoder reads it separately.

    Example:
        >>> ChoicesToRows()(keras.ops.ones((2, 4, 7), dtype="int32")).shape
        TensorShape([8, 7])
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch, choices, ...) to (batch * choices, ...)."""
        batch, choices, *rest = ops.shape(inputs)
        return ops.reshape(inputs, (batch * choices, *rest))

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        batch, choices, *rest = inputs.shape
        rows = None if batch is None or choices is None else batch * choices
        return keras.KerasTensor((rows, *rest), dtype=inputs.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class RowsToChoices(keras.layers.Layer):
    """Groups the scores of rows by example again, undoing `ChoicesToRows`.

    Choices without a real token pad rows with fewer choices. Their score is -1e9.

    Example:
        >>> mask = keras.ops.array([[[True, True], [True, False]], [[True, True], [False, False]]])
        >>> RowsToChoices()(keras.ops.array([[1.0], [2.0], [3.0], [4.0]]), mask, mask).numpy()
        array([[ 1.e+00,  2.e+00],
               [ 3.e+00, -1.e+09]], dtype=float32)
    """

    def call(self, scores: Tensor, choices: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Maps scores (batch * choices, 1) to (batch, choices).

        Args:
            scores: one per row.
            choices: any tensor whose first two axes are (batch, choices).
            padding_mask: bool (batch, choices, length), or None if all choices are real.
        """
        grouped = ops.reshape(scores, ops.shape(choices)[:2])
        if padding_mask is None:
            return grouped
        return ops.where(ops.any(padding_mask, axis=-1), grouped, MASKED_SCORE)

    def compute_output_spec(
        self, scores: Tensor, choices: Tensor, padding_mask: Tensor | None = None
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(choices.shape[:2], dtype=scores.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class RowsToGroups(keras.layers.Layer):
    """Groups the vectors of rows by example again, undoing `ChoicesToRows`.

    Example:
        >>> RowsToGroups()(keras.ops.ones((6, 5)), keras.ops.ones((2, 3, 7))).shape
        TensorShape([2, 3, 5])
    """

    def call(self, vectors: Tensor, groups: Tensor) -> Tensor:
        """Maps vectors (batch * group, width) to (batch, group, width).

        Args:
            vectors: one per row.
            groups: any tensor whose first two axes are (batch, group).
        """
        return ops.reshape(vectors, (*ops.shape(groups)[:2], vectors.shape[-1]))

    def compute_output_spec(self, vectors: Tensor, groups: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((*groups.shape[:2], vectors.shape[-1]), dtype=vectors.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class StartsAndEnds(keras.layers.Layer):
    """Splits logits into start and end logits, and sets them to -1e9 at padding."""

    def call(self, logits: Tensor, padding_mask: Tensor) -> Tensor:
        """Maps (batch, length, 2) and a mask (batch, length) to two tensors (batch, length)."""
        logits = ops.where(padding_mask[..., None], logits, MASKED_SCORE)
        return logits[..., 0], logits[..., 1]

    def compute_output_spec(self, logits: Tensor, padding_mask: Tensor) -> Tensor:
        """Returns the shapes and dtype of `call`'s results."""
        one = keras.KerasTensor(logits.shape[:2], dtype=logits.dtype)
        return one, keras.KerasTensor(one.shape, dtype=one.dtype)
