"""Packs rows of tokens into an encoder's dense, padded inputs.

Uses only core TensorFlow ops: tensorflow_text's trimmers and packers need ops that TensorFlow
Serving's images lack (github.com/tensorflow/serving/issues/2267).
"""

from collections.abc import Sequence

import tensorflow as tf


def trim(rows: tf.RaggedTensor, max_tokens: int | tf.Tensor) -> tf.RaggedTensor:
    """Cuts the ends off rows that are too long.

    Args:
        rows: (batch, None).
        max_tokens: most tokens in a row, one number or int64 (batch,).

    Returns:
        The shortened rows.
    """
    num_kept = tf.minimum(rows.row_lengths(), max_tokens)  # (batch,)
    row = rows.value_rowids()  # (tokens,)
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(rows.row_starts(), row)
    values = tf.boolean_mask(rows.values, position < tf.gather(num_kept, row))
    return tf.RaggedTensor.from_row_lengths(values, num_kept, validate=False)


def trim_longest_first(
    segments: Sequence[tf.RaggedTensor], max_tokens: int
) -> list[tf.RaggedTensor]:
    """Cuts tokens off the end of the longer segment, one by one, until both fit together.

    Same result as truncation="longest_first" in Hugging Face's fast tokenizers: if both segments
    are cut and `max_tokens` is odd, the longer one keeps the odd token, or the second if they were
    equally long.

    Args:
        segments: one or two ragged tensors of tokens, (batch, None).
        max_tokens: most tokens that a row may have in both segments together.

    Returns:
        The shortened segments.
    """
    if len(segments) == 1:
        return [trim(segments[0], max_tokens)]
    first, second = segments
    num_first, num_second = first.row_lengths(), second.row_lengths()  # (batch,)
    half = (max_tokens + tf.cast(num_first > num_second, tf.int64)) // 2
    return [
        trim(first, tf.maximum(max_tokens - num_second, half)),
        trim(second, tf.maximum(max_tokens - num_first, max_tokens - half)),
    ]


def pack(
    segments: Sequence[tf.RaggedTensor],
    *,
    special_tokens: Sequence[Sequence[int]],
    pad_token_id: int,
    length: int | None = None,
) -> dict[str, tf.Tensor]:
    """Joins segments and special tokens, and pads the rows to one length.

    Args:
        segments: ragged tensors of tokens, int32 (batch, None).
        special_tokens: ids before each segment and after the last; BERT: [CLS] a [SEP] b [SEP].
        pad_token_id: fills the rest of each row.
        length: length to pad to, at least that of the longest row with its special tokens (the
            default).

    Returns:
        token_ids int32, segment_ids int32 (0 for the first segment and padding, 1 for the second)
        and padding_mask bool (True = token), each (batch, length). Hugging Face calls them
        input_ids, token_type_ids and attention_mask.
    """
    rows = join(segments, special_tokens)
    token_ids = rows.to_tensor(pad_token_id, shape=[None, length])  # (batch, length)
    width = tf.shape(token_ids)[1]
    padding_mask = tf.sequence_mask(rows.row_lengths(), width)
    num_special = sum(map(len, special_tokens[:2]))
    in_first = tf.sequence_mask(segments[0].row_lengths() + num_special, width)
    return {
        "token_ids": token_ids,
        "segment_ids": tf.cast(padding_mask & ~in_first, tf.int32),
        "padding_mask": padding_mask,
    }


def join(segments: Sequence[tf.RaggedTensor], between: Sequence[Sequence[int]]) -> tf.RaggedTensor:
    """Joins segments, with the same tokens around them in each row.

    Args:
        segments: ragged tensors of tokens, int32 (batch, None).
        between: ids before each segment and after the last.

    Returns:
        int32 (batch, None).
    """
    batch = segments[0].nrows()
    first, *others = (tf.tile(tf.constant([tokens], tf.int32), [batch, 1]) for tokens in between)
    parts = [part for pair in zip(segments, others, strict=True) for part in pair]
    return tf.concat([first, *parts], axis=1)
