"""Maps token spans from normalized text back to the original text.

Uses only core TensorFlow ops, eagerly or in a graph.
"""

import tensorflow as tf

from keras_transformers.tokenizers.tensors import kept, row_numbers, searchsorted


def origins_of_spans(
    text: tf.Tensor, origins: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Maps spans of normalized texts to spans of the original texts.

    Args:
        text: the original texts, strings (batch,).
        origins: int64 (batch, normalized bytes + 1). For each normalized byte, the start of the
            original character that it comes from; the last entry is the length of the text.
        starts: int64 (spans,), indices into `origins.values`.
        ends: int64 (spans,), exclusive; each above its start.

    Returns:
        Starts and ends, int32 (spans,), in bytes of the original texts.
    """
    # One rising sequence for all texts: each text's origins plus the lengths of earlier texts.
    rooms = tf.cast(tf.strings.length(text), tf.int64) + 1
    shifts = tf.gather(tf.cumsum(rooms, exclusive=True), row_numbers(origins))
    rising = origins.values + shifts
    # The bytes that one character becomes have equal origins, and a span may end between them. Its
    # end is then where the next character starts.
    ends = searchsorted(rising, tf.gather(rising, ends - 1), side="right", dtype=tf.int64)
    values = tf.cast(origins.values, tf.int32)
    return tf.gather(values, starts), tf.gather(values, ends)


def within_texts(
    text: tf.Tensor, rows: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Converts spans in bytes of all texts end to end to spans in their own texts, int32.

    Args:
        text: strings (batch,).
        rows: int64 (spans,), the index of each span's text.
        starts: int64 (batch, None).
        ends: int64 (batch, None).
    """
    lengths = tf.cast(tf.strings.length(text), tf.int64)
    shifts = tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    return (
        starts.with_values(tf.cast(starts.values - shifts, tf.int32)),
        ends.with_values(tf.cast(ends.values - shifts, tf.int32)),
    )


def without_white_space(
    text: tf.Tensor,
    starts: tf.Tensor,
    ends: tf.Tensor,
    rows: tf.Tensor,
    *,
    character_starts: tf.Tensor,
    is_white_space: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts spans to the characters that they touch and that are not white space.

    A span that touches none becomes empty, at the end of the last such character before it.

    Args:
        text: strings (batch,).
        starts: int64 (spans,), in bytes of all texts end to end.
        ends: int64 (spans,), in the same units, exclusive.
        rows: int64 (spans,), the index of each span's text.
        character_starts: int64 (characters,), in the same units, of all texts.
        is_white_space: bool (characters,).

    Returns:
        Starts and ends, int32 (spans,), in bytes of their own texts.
    """
    lengths = tf.cast(tf.strings.length(text), tf.int64)  # (batch,), in bytes
    text_starts = tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    shown = tf.logical_not(is_white_space)
    character_ends = tf.concat([character_starts[1:], tf.reduce_sum(lengths)[None]], 0)
    character_ends = kept(character_ends[: tf.size(shown)], shown)
    character_starts = kept(character_starts, shown)
    # The first shown character that ends after the span starts, and the last one that starts
    # before the span ends.
    first = searchsorted(character_ends, starts, side="right")
    last = searchsorted(character_starts, ends) - 1
    before = tf.concat([[0], character_ends], 0)  # the end of the character before each
    ends = tf.maximum(tf.gather(before, last + 1), text_starts)
    after = tf.concat([character_starts, [0]], 0)
    starts = tf.where(first <= last, tf.gather(after, first), ends)
    return tf.cast(starts - text_starts, tf.int32), tf.cast(ends - text_starts, tf.int32)


def to_characters(text: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Converts byte offsets into UTF-8 texts to character (Unicode code point) offsets.

    >>> to_characters(tf.constant(["caf\u00e9 x"]), tf.ragged.constant([[0, 5, 6]])).to_list()
    [[0, 4, 5]]

    Args:
        text: strings (batch,). Invalid UTF-8 counts as U+FFFD characters.
        byte_offsets: int32 (batch, None), each at the start of a character or the end of the text.

    Returns:
        int32 (batch, None).
    """
    _, begins = tf.strings.unicode_decode_with_offsets(text, "UTF-8")  # (batch, characters)
    rooms = tf.cast(tf.strings.length(text), tf.int64) + 1
    shifts = tf.cumsum(rooms, exclusive=True)  # (batch,)
    rising = begins.values + tf.gather(shifts, row_numbers(begins))
    row = row_numbers(byte_offsets)
    wanted = tf.cast(byte_offsets.values, tf.int64) + tf.gather(shifts, row)
    before = searchsorted(rising, wanted, dtype=tf.int64)  # in this and earlier texts
    return byte_offsets.with_values(tf.cast(before - tf.gather(begins.row_starts(), row), tf.int32))
