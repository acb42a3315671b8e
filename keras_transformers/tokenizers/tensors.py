"""Helpers of all tokenizers for the shapes of texts and token ids."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformers.files.surrogates import check_text

Texts: TypeAlias = tf.Tensor | np.ndarray | Sequence[str | bytes]  # strings (batch,)


def texts_of(text: Texts, name: str = "text") -> tf.Tensor:
    """Converts texts to a tensor of strings (batch,).

    Args:
        text: strings (batch,).
        name: what they are, for messages.

    Raises:
        ValueError: they have another shape, or one has half of a surrogate pair.
    """
    try:
        strings = tf.convert_to_tensor(text, tf.string)
    except (TypeError, ValueError):  # which does not say where
        if not tf.is_tensor(text):
            for row, string in enumerate(text):
                if isinstance(string, str):
                    check_text(f"{name}[{row}]", string)
        raise
    if strings.shape.rank != 1:
        raise ValueError(f"text of shape {strings.shape}: expected (batch,); put it in a list")
    return strings


def places(mask: tf.Tensor, dtype: tf.DType = tf.int64) -> tf.Tensor:
    """Returns the indices at which a mask, bool (items,), is True: (True items,)."""
    return tf.cast(tf.squeeze(tf.where(mask), axis=1), dtype)


def kept(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the values (items, ...) at which a mask, bool (items,), is True.

    Does what `tf.boolean_mask` does for masks of any rank with a sixth of its nodes. Take `places`
    for several values of one mask.
    """
    return tf.gather(values, places(mask))


def searchsorted(
    ascending: tf.Tensor, values: tf.Tensor, *, side: str = "left", dtype: tf.DType = tf.int32
) -> tf.Tensor:
    """Does for vectors what `tf.searchsorted` does for any shape, with a third of its nodes."""
    bound = tf.raw_ops.UpperBound if side == "right" else tf.raw_ops.LowerBound
    indices = bound(
        sorted_inputs=tf.expand_dims(ascending, 0), values=tf.expand_dims(values, 0), out_type=dtype
    )
    return tf.squeeze(indices, axis=0)


def item_numbers(lengths: tf.Tensor, dtype: tf.DType = tf.int32) -> tf.Tensor:
    """Returns 0 `lengths[0]` times, then 1 `lengths[1]` times, and so on: (sum of the lengths,).

    Does what `tf.repeat` of a range does, with a third of its nodes.
    """
    items = tf.range(tf.reduce_sum(lengths))
    return searchsorted(tf.cumsum(lengths), items, side="right", dtype=dtype)


def row_numbers(rows: tf.RaggedTensor) -> tf.Tensor:
    """Returns the row of each value, int64 (values,).

    Does what `rows.value_rowids()` does, with a sixth of its nodes, unless the tensor was made of
    these numbers.
    """
    splits = rows.row_splits
    return searchsorted(splits, tf.range(splits[-1]), side="right", dtype=tf.int64) - 1


def row_by_row(function: Callable[[tf.Tensor], tf.Tensor], token_ids: tf.Tensor) -> tf.Tensor:
    """Applies a function of ids (rows, length) to ids (..., length): strings (...)."""
    shape = tf.shape(token_ids)
    # Not -1, which is ambiguous if there are no ids.
    rows = tf.reshape(token_ids, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))
    return tf.reshape(function(rows), shape[:-1])
