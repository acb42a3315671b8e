"""Helpers of all tokenizers for the shapes of texts and token ids."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def texts_of(text: Any) -> tf.Tensor:
    """Converts texts to a tensor of strings (batch,); ValueError for any other shape."""
    text = tf.convert_to_tensor(text, tf.string)
    if text.shape.rank != 1:
        raise ValueError(f"text of shape {text.shape}: expected (batch,); put it in a list")
    return text


def with_ends(
    token_ids: tf.RaggedTensor, *, start_token_id: int | None, end_token_id: int | None
) -> tf.RaggedTensor:
    """Adds a start and an end token, unless None, to each row of token ids (batch, None)."""
    parts = [token_ids]
    column = tf.stack([token_ids.nrows(), 1])
    if start_token_id is not None:
        parts.insert(0, tf.fill(column, start_token_id))
    if end_token_id is not None:
        parts.append(tf.fill(column, end_token_id))
    return tf.concat(parts, axis=1) if len(parts) > 1 else token_ids


def row_by_row(function: Callable[[tf.Tensor], tf.Tensor], token_ids: tf.Tensor) -> tf.Tensor:
    """Applies a function of ids (rows, length) to ids (..., length): strings (...)."""
    shape = tf.shape(token_ids)
    # Not -1, which is ambiguous if there are no ids.
    rows = tf.reshape(token_ids, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))
    return tf.reshape(function(rows), shape[:-1])
