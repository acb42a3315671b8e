"""Splits texts into words as GPT-2 does, with core TensorFlow ops, eagerly or in a graph."""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.tensors import row_numbers, searchsorted

OTHER, LETTER, NUMBER, SPACE, _BORDER = range(5)  # kinds of characters; _BORDER: none
# Unicode's White_Space, which will not change in later versions.
_WHITE_SPACE = (
    *(*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)
# Endings that are separate words after an apostrophe: GPT-2's 's 't 'm 'd and 're 've 'll.
_SHORT_ENDINGS = ("s", "t", "m", "d")
_LONG_ENDINGS = (("r", "e"), ("v", "e"), ("l", "l"))


class Kinds(NamedTuple):
    """The kinds of all Unicode characters, as runs of the same kind."""

    starts: tf.Tensor  # int32 (runs,), the first code point of each, ascending
    kinds: tf.Tensor  # int32 (runs,)


class Characters(NamedTuple):
    """The characters of all texts, end to end."""

    codes: tf.Tensor  # int32 (characters,)
    kinds: tf.Tensor  # int32 (characters,)
    starts: tf.Tensor  # int64 (characters,), byte offsets into all texts end to end
    rows: tf.Tensor  # int64 (characters,), the index of each character's text

    @property
    def is_white_space(self) -> tf.Tensor:
        """Whether each character is white space, bool (characters,)."""
        return self.kinds == SPACE


@functools.cache
def character_kinds() -> Kinds:
    """Returns the kinds according to Python's Unicode tables."""
    initials = {"L": LETTER, "N": NUMBER}
    kinds = np.array(
        [initials.get(unicodedata.category(chr(code))[0], OTHER) for code in range(0x110000)],
        np.int32,
    )
    kinds[list(_WHITE_SPACE)] = SPACE
    starts = np.flatnonzero(np.diff(kinds, prepend=-1))
    return Kinds(starts.astype(np.int32), kinds[starts])


def characters_of(text: tf.Tensor, kinds: Kinds) -> Characters:
    """Decodes texts, strings (batch,), into characters; invalid UTF-8 counts as U+FFFD."""
    codes, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="replace")
    lengths = tf.cast(tf.strings.length(text), tf.int64)  # in bytes
    text_starts = tf.cumsum(lengths, exclusive=True)
    rows = row_numbers(codes)  # (characters,)
    run = searchsorted(kinds.starts, codes.values, side="right") - 1
    return Characters(
        codes.values,
        tf.gather(kinds.kinds, run),
        offsets.values + tf.gather(text_starts, rows),
        rows,
    )


def starts_word(characters: Characters) -> tf.Tensor:
    r"""Returns whether each character starts a word, bool (characters,).

    GPT-2's pattern is `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
    matched from left to right. Whether a word starts at a character depends only on the two
    characters before it and the one after it, or on four near an apostrophe. All characters can
    therefore be classified at once, without lookahead, which TensorFlow's regular expressions lack.
    """
    codes, kinds, _, rows = characters
    is_first = tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]
    is_last = tf.concat([is_first[1:], [True]], 0)[: tf.size(rows)]
    before = tf.where(is_first, _BORDER, shifted(kinds, 1, _BORDER))
    after = tf.where(is_last, _BORDER, shifted(kinds, -1, _BORDER))
    next_code = tf.where(is_last, 0, shifted(codes, -1, 0))
    code_after_next = tf.where(is_last | shifted(is_last, -1, True), 0, shifted(codes, -2, 0))

    # An apostrophe joins the space or symbols before it.
    after_space = tf.logical_not(is_first) & (shifted(codes, 1, 0) == ord(" "))
    may_end = (codes == ord("'")) & (before != OTHER) & tf.logical_not(after_space)
    is_short, is_long = tf.zeros_like(may_end), tf.zeros_like(may_end)
    for ending in _SHORT_ENDINGS:
        is_short |= may_end & (next_code == ord(ending))
    for first, second in _LONG_ENDINGS:
        is_long |= may_end & (next_code == ord(first)) & (code_after_next == ord(second))
    in_ending = shifted(is_short | is_long, 1, False) | shifted(is_long, 2, False)
    after_ending = shifted(is_short, 2, False) | shifted(is_long, 3, False)

    is_space = kinds == SPACE
    # If a word follows a run of spaces, it takes the last one.
    space_starts = (before != SPACE) | tf.logical_not((after == SPACE) | (after == _BORDER))
    text_starts = (before != kinds) & tf.logical_not(after_space | in_ending)
    return tf.where(is_space, space_starts, text_starts | after_ending)


def shifted(values: tf.Tensor, by: int, fill: int | bool) -> tf.Tensor:
    """Shifts values `by` positions towards the end, or towards the start if negative."""
    size = tf.size(values)
    filling = tf.fill([tf.minimum(abs(by), size)], tf.cast(fill, values.dtype))
    if by > 0:
        return tf.concat([filling, values], 0)[:size]
    return tf.concat([values[-by:], filling], 0)
