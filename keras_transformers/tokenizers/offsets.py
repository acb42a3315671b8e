"""Where a token is in a text: from normalized text back to the text as it was given.

Core TensorFlow ops only, in and out of the graph.
"""

import tensorflow as tf


def origins_of_spans(
    text: tf.Tensor, origins: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Spans of normalized texts to spans of the texts as they were given.

    Args:
        text: strings (batch,), as they were given.
        origins: int64 (batch, normalized bytes + 1), for each byte of a normalized text where the
            character starts that it comes from, and last the length of the text.
        starts: int64 (spans,), indices into `origins.values`.
        ends: int64 (spans,), exclusive; each above its start.

    Returns:
        Starts and ends, int32 (spans,), in bytes of the texts.
    """
    # One rising sequence for all texts: a text's origins, plus the room of the texts before it.
    rooms = tf.cast(tf.strings.length(text), tf.int64) + 1
    shifts = tf.gather(tf.cumsum(rooms, exclusive=True), origins.value_rowids())
    rising = origins.values + shifts
    # A character that becomes several bytes has as many equal origins, and a span may end between
    # them: its end is where the next character starts.
    ends = tf.searchsorted(rising, tf.gather(rising, ends - 1), side="right", out_type=tf.int64)
    values = tf.cast(origins.values, tf.int32)
    return tf.gather(values, starts), tf.gather(values, ends)


def to_characters(text: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Byte offsets into UTF-8 texts to offsets in characters (Unicode code points).

    >>> to_characters(tf.constant(["caf\u00e9 x"]), tf.ragged.constant([[0, 5, 6]])).to_list()
    [[0, 4, 5]]

    Args:
        text: strings (batch,). Bytes that are not UTF-8 count as U+FFFD characters.
        byte_offsets: int32 (batch, None), each where a character starts, or the text ends.

    Returns:
        int32 (batch, None).
    """
    _, begins = tf.strings.unicode_decode_with_offsets(text, "UTF-8")  # (batch, characters)
    rooms = tf.cast(tf.strings.length(text), tf.int64) + 1
    shifts = tf.cumsum(rooms, exclusive=True)  # (batch,)
    rising = begins.values + tf.gather(shifts, begins.value_rowids())
    row = byte_offsets.value_rowids()
    wanted = tf.cast(byte_offsets.values, tf.int64) + tf.gather(shifts, row)
    before = tf.searchsorted(rising, wanted, out_type=tf.int64)  # in this and earlier texts
    return byte_offsets.with_values(tf.cast(before - tf.gather(begins.row_starts(), row), tf.int32))
