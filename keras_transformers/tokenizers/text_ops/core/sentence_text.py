"""Normalizes texts as a SentencePiece model does: its rules, then white space."""

from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.described.charsmap import Charsmap, charsmap_of
from keras_transformers.tokenizers.described.text import Text, before, changes, numbered
from keras_transformers.tokenizers.tensors import places
from keras_transformers.tokenizers.text_ops.core import utf8

SPACE_MARK = "▁"
_NO_RULES = charsmap_of({"\ufdd0": "\ufdd0"})
_SPACE = ord(" ")


class Normalizer:
    """Normalizes texts, with the origin of each character (`Normalize` in normalizer.cc).

    Args:
        spec: the model's NormalizerSpec.
        literals: the model's user-defined symbols, which stay as they are.
    """

    def __init__(self, spec: Any, literals: list[str]) -> None:
        self._charsmap = Charsmap(spec.precompiled_charsmap or _NO_RULES, literals)
        self._adds_prefix: bool = spec.add_dummy_prefix
        self._strips: bool = spec.remove_extra_whitespaces
        self._space = ord(SPACE_MARK) if spec.escape_whitespaces else _SPACE

    def __call__(self, text: tf.Tensor) -> Text:
        """Normalizes strings (batch,).

        Origins are bytes of a character's own text, exclusive ends the start of the next character.
        """
        lengths = tf.cast(tf.strings.length(text), tf.int64)
        rows = tf.size(lengths, tf.int64)
        units = self._charsmap.units(utf8.decode(text))
        units = units._replace(starts=units.starts - _of_rows(lengths, units.rows))
        # Where the text starts, without the spaces before it.
        stays = ~self._charsmap.are_spaces(units) if self._strips else units.rows >= 0
        start = tf.math.unsorted_segment_min(
            tf.where(stays, units.starts, tf.int64.max), units.rows, rows
        )
        has_prefix = (start < tf.int64.max) & self._adds_prefix  # (batch,)
        normal = self._charsmap.replaced(units)
        codes = tf.where(normal.codes == utf8.INVALID, utf8.REPLACEMENT, normal.codes)
        normal = normal._replace(codes=codes)
        if self._strips:
            normal = normal.only(~_repeated_spaces(normal))
        normal = _with_prefix(normal, places(has_prefix), tf.gather(start, places(has_prefix)))
        codes = tf.where(normal.codes == _SPACE, self._space, normal.codes)
        normal = normal._replace(codes=codes)
        ends = lengths
        if self._strips:  # also the prefix, if nothing else is left
            index = tf.range(tf.size(codes, tf.int64))
            last = tf.math.unsorted_segment_max(
                tf.where(codes == self._space, tf.constant(-1, tf.int64), index), normal.rows, rows
            )
            trails = index > tf.gather(last, normal.rows)
            first = tf.math.unsorted_segment_min(
                tf.where(trails, normal.starts, tf.int64.max), normal.rows, rows
            )
            ends = tf.minimum(ends, first)
            normal = normal.only(~trails)
        following = tf.concat([normal.starts[1:], [0]], 0)[: tf.size(normal.rows)]
        is_last = tf.concat([normal.begins()[1:], [True]], 0)[: tf.size(normal.rows)]
        ends = tf.where(is_last, tf.gather(ends, normal.rows), following)
        return normal._replace(ends=ends)


def _of_rows(lengths: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.cumsum(lengths, exclusive=True), rows)


def _repeated_spaces(text: Text) -> tf.Tensor:
    """Returns which spaces to drop: those that start what replaced a string, after a space."""
    is_space = text.codes == _SPACE
    begins = text.begins()
    is_first = begins | changes(text.starts)
    firsts, unit = places(is_first), numbered(is_first)
    others = tf.cumsum(tf.cast(~is_space, tf.int32), exclusive=True)
    leads = is_space & (others == tf.gather(tf.gather(others, firsts), unit))
    after_space = begins | before(is_space, False)
    return leads & tf.gather(tf.gather(after_space, firsts), unit)


def _with_prefix(text: Text, rows: tf.Tensor, starts: tf.Tensor) -> Text:
    """Inserts a space at the start of these rows, int64 (rows,), ascending."""
    prefix = Text(tf.fill(tf.shape(rows), _SPACE), rows, starts, starts, rows, rows >= 0)
    row = tf.concat([rows, text.rows], 0)
    order = tf.argsort(row, stable=True)
    columns = zip(prefix, text, strict=True)
    return Text(*(tf.gather(tf.concat(column, 0), order) for column in columns))
