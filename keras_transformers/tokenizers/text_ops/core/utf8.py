"""Decodes UTF-8 as SentencePiece does: each byte that belongs to no character counts as one."""

import tensorflow as tf

from keras_transformers.tokenizers.byte_pairs.gpt2_words import shifted
from keras_transformers.tokenizers.described.text import Text, encode
from keras_transformers.tokenizers.tensors import item_numbers, places

INVALID = 0xD800  # stands for such a byte: half of a surrogate pair is no character
REPLACEMENT = 0xFFFD
# Of characters of 2, 3 and 4 bytes: bits of the first byte, their values, and the least code.
_KINDS = ((2, 0xE0, 0xC0, 0x80), (3, 0xF0, 0xE0, 0x800), (4, 0xF8, 0xF0, 0x10000))


def decode(text: tf.Tensor) -> Text:
    """Decodes texts, strings (batch,); bytes that belong to no character become `INVALID`."""
    lengths = tf.cast(tf.strings.length(text), tf.int64)
    rows = item_numbers(lengths, tf.int64)
    first = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8), tf.int32)
    codes = tf.where(first < 0x80, first, INVALID)  # (bytes,), of characters that start there
    covered = tf.zeros_like(first, tf.bool)  # by a character that starts before
    complete = tf.fill(tf.shape(first), True)
    rest = tf.zeros_like(first)
    for size, mask, lead, least in _KINDS:
        byte = shifted(first, 1 - size, 0)
        complete &= (byte & 0xC0 == 0x80) & (shifted(rows, 1 - size, -1) == rows)
        rest = rest * 64 + (byte & 0x3F)
        code = (first & ~mask & 0xFF) * 64 ** (size - 1) + rest
        starts = complete & (first & mask == lead) & (code >= least) & (code < 0x110000)
        starts &= (code < 0xD800) | (code >= 0xE000)
        codes = tf.where(starts, code, codes)
        for by in range(1, size):
            covered |= shifted(starts, by, False)
    at = places(~covered)
    ends = tf.concat([at[1:], tf.reduce_sum(lengths)[None]], 0)[: tf.size(at)]
    rows = tf.gather(rows, at)
    return Text(tf.gather(codes, at), rows, at, ends, rows, tf.ones_like(rows, tf.bool))


def repaired(text: tf.Tensor) -> tf.Tensor:
    """Replaces each byte of strings (batch,) that belongs to no character with U+FFFD."""
    characters = decode(text)  # encoding replaces codes that are no characters
    return encode(characters, characters.rows, tf.size(text, tf.int64))
