"""Represents texts as flat arrays of characters with their origins, and tables over Unicode."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.tensors import item_numbers, places, row_numbers, searchsorted

CODES = 0x110000


class Text(NamedTuple):
    """The characters of all pieces of text, end to end.

    Attributes:
        codes: int32 (characters,), code points.
        rows: int64 (characters,), the number of each character's piece, ascending.
        starts: int64 (characters,), its origin: a byte offset in all original texts end to end.
        ends: int64 (characters,), in the same units, exclusive.
        places: int64 (characters,), where its tokens go among all tokens, ascending.
        leads: bool (characters,), whether its piece is the first of its text.
    """

    codes: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    places: tf.Tensor
    leads: tf.Tensor

    def only(self, mask: tf.Tensor) -> "Text":
        """Returns the characters where `mask`, bool (characters,), is True."""
        return self.take(places(mask))

    def take(self, indices: tf.Tensor) -> "Text":
        """Returns the characters with these indices, in this order."""
        return Text(*(tf.gather(column, indices) for column in self))

    def begins(self) -> tf.Tensor:
        """Returns whether each character is the first of its piece, bool (characters,)."""
        return changes(self.rows)


def decode(text: tf.Tensor) -> Text:
    """Decodes texts, strings (batch,), into characters; invalid UTF-8 counts as U+FFFD."""
    codes, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="replace")
    lengths = tf.cast(tf.strings.length(text), tf.int64)  # in bytes
    rows = row_numbers(codes)
    starts = offsets.values + tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    ends = tf.concat([starts[1:], tf.reduce_sum(lengths)[None]], 0)[: tf.size(starts)]
    return Text(codes.values, rows, starts, ends, rows, tf.ones_like(rows, tf.bool))


def changes(values: tf.Tensor) -> tf.Tensor:
    """Returns whether each value differs from the one before it; the first one does."""
    return tf.concat([[True], values[1:] != values[:-1]], 0)[: tf.size(values)]


def before(values: tf.Tensor, fill: tf.Tensor) -> tf.Tensor:
    """Returns the value before each value; `fill` before the first."""
    return tf.concat([tf.cast([fill], values.dtype), values], 0)[: tf.size(values)]


def after(values: tf.Tensor, fill: tf.Tensor) -> tf.Tensor:
    """Returns the value after each value; `fill` after the last."""
    return tf.concat([values, tf.cast([fill], values.dtype)], 0)[1:]


def numbered(is_first: tf.Tensor) -> tf.Tensor:
    """Returns int64 (values,): the number of the group that each value is in."""
    return tf.cumsum(tf.cast(is_first, tf.int64)) - 1


class CharacterClass:
    """A set of characters."""

    def __init__(self, members: np.ndarray) -> None:
        """`members`: bool (CODES,)."""
        bounds = np.flatnonzero(np.diff(members, prepend=False)).astype(np.int32)
        self._bounds = tf.constant(bounds)

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns whether each code point is in the set."""
        return searchsorted(self._bounds, codes, side="right") % 2 == 1


class CharacterMap:
    """Replaces single characters by none, one or more."""

    def __init__(self, table: dict[int, tuple[int, ...]]) -> None:
        """`table`: code point, or a larger number for several of them -> its replacement."""
        keys = sorted(table)
        lengths = [len(table[key]) for key in keys]
        # Two entries that no character reaches, so that an empty table works too.
        self._keys = tf.constant([*keys, tf.int32.max], tf.int32)
        self._lengths = tf.constant([*lengths, 1], tf.int64)
        self._firsts = tf.constant(np.cumsum([0, *lengths]), tf.int64)
        flat = [code for key in keys for code in table[key]]
        self._values = tf.constant([*flat, 0], tf.int32)

    def __call__(self, text: Text) -> Text:
        """Returns the text with replaced characters."""
        place = searchsorted(self._keys, text.codes)
        matches = tf.gather(self._keys, place) == text.codes
        lengths = tf.where(matches, tf.gather(self._lengths, place), 1)  # (characters,)
        firsts = tf.cumsum(lengths, exclusive=True)
        origin = item_numbers(lengths)  # (new characters,)
        number = tf.range(tf.size(origin, tf.int64)) - tf.gather(firsts, origin)
        value = tf.minimum(
            tf.gather(self._firsts, tf.gather(place, origin)) + number,
            tf.size(self._values, tf.int64) - 1,
        )
        new = with_deleted(text, lengths > 0).take(tf.gather(numbered(lengths > 0), origin))
        codes = tf.where(tf.gather(matches, origin), tf.gather(self._values, value), new.codes)
        return new._replace(codes=codes)


def with_deleted(text: Text, mask: tf.Tensor) -> Text:
    """Deletes characters outside `mask`; each then belongs to the one before it in its piece."""
    group = numbered(mask)  # -1 before the first
    remaining = text.only(mask)
    size = tf.size(remaining.rows, tf.int64)
    same = tf.gather(tf.concat([[-1], remaining.rows], 0), group + 1) == text.rows
    ends = tf.math.unsorted_segment_max(tf.where(same, text.ends, 0), group, size)
    return remaining._replace(ends=tf.maximum(ends, remaining.ends))


def encode(text: Text, words: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Joins characters into strings (count,), by the number of their word, int64 (characters,)."""
    return tf.strings.unicode_encode(
        tf.RaggedTensor.from_value_rowids(text.codes, words, nrows=count, validate=False), "UTF-8"
    )


def byte_lengths(codes: tf.Tensor) -> tf.Tensor:
    """Returns how many bytes of UTF-8 each code point takes, int64."""
    return 1 + sum(tf.cast(codes >= least, tf.int64) for least in (0x80, 0x800, 0x10000))
