"""Finds the most likely pieces of texts (Kudo 2018, arXiv:1804.10959) with TensorFlow's own ops."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.described.text import Text
from keras_transformers.tokenizers.described.trie import Trie, marks, row_bounds
from keras_transformers.tokenizers.tensors import places

_UNKNOWN_PENALTY = np.float32(10)
_NEVER = np.array(-np.inf)


class Unigrams:
    """The Viterbi algorithm (`EncodeOptimized` in unigram_model.cc).

    SentencePiece adds scores in float64 and keeps sums in float32. Long texts make their rounding
    decide between pieces, so this does the same, in the same order.

    Args:
        scores: piece -> score; user-defined symbols have their bonus.
        ids: piece -> id.
        least: the least score of a normal piece.
        unknown_id: the id of characters that are no pieces.
    """

    def __init__(
        self,
        scores: Mapping[str, float],
        ids: Mapping[str, int],
        *,
        least: np.float32,
        unknown_id: int,
    ) -> None:
        self._trie = Trie(list(scores))
        self._scores = tf.constant(list(scores.values()), tf.float64)
        self._ids = tf.constant([ids[piece] for piece in scores], tf.int32)
        self._unknown_score = float(least - _UNKNOWN_PENALTY)
        self._unknown_id = unknown_id

    def __call__(self, text: Text) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits texts into pieces.

        Returns:
            The index of each piece's first and last character and its id, int32 (pieces,).
        """
        size, depth = tf.size(text.codes), max(self._trie.depth, 1)
        first, row, row_end = row_bounds(text)
        at, length, string = self._trie.matches(text, row_end)
        # By the piece's last character and, from left to right, its first: (characters, depth).
        where = tf.stack([at + length - 1, depth - length], axis=1)
        shape = tf.stack([size, depth])
        place = tf.tensor_scatter_nd_update(tf.fill(shape, -1), where, string)
        scores = tf.where(place < 0, _NEVER, tf.gather(self._scores, tf.maximum(place, 0)))
        is_unknown = place[:, -1] < 0
        unknown = tf.where(is_unknown, tf.constant(self._unknown_score, tf.float64), scores[:, -1])
        scores = tf.concat([scores[:, :-1], unknown[:, None]], axis=1)
        sums = self._sums(scores, first, row_end)
        # The sum before each piece that ends at a character: 0 before the text.
        starts = tf.range(size)[:, None] - tf.range(depth, 0, -1)  # the character before it
        inside = starts >= tf.gather(first, row)[:, None]
        before = tf.where(inside, tf.gather(sums, tf.maximum(starts, 0)), 0.0)
        totals = scores + tf.cast(before, tf.float64)
        # In C++, the sum for an unknown character is a float32.
        rounded = tf.cast(tf.cast(totals[:, -1], tf.float32), tf.float64)
        last = tf.where(is_unknown, rounded, totals[:, -1])
        totals = tf.concat([totals[:, :-1], last[:, None]], axis=1)
        length = self._best(totals)
        is_end = self._path(length, tf.gather(first, row), row_end)
        ends = places(is_end, tf.int32)
        length = tf.gather(length, ends)
        piece = tf.gather_nd(place, tf.stack([ends, depth - length], axis=1))
        ids = tf.where(piece < 0, self._unknown_id, tf.gather(self._ids, tf.maximum(piece, 0)))
        return ends - length + 1, ends, ids

    def _sums(self, scores: tf.Tensor, first: tf.Tensor, row_end: tf.Tensor) -> tf.Tensor:
        """Returns the best path's score up to each character, float32 (characters,)."""
        depth = scores.shape[1]
        count = tf.size(first)
        stop = tf.gather(row_end, first)  # (rows,)
        longest = tf.reduce_max(tf.concat([stop - first, [1]], 0))
        window = tf.zeros([count, depth])  # the sums up to the last `depth` characters
        sums = tf.TensorArray(tf.float32, size=longest, element_shape=[None])

        def step(
            at: tf.Tensor, window: tf.Tensor, sums: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            here = tf.gather(scores, tf.minimum(first + at, stop - 1))  # (rows, depth)
            best = tf.cast(tf.reduce_max(here + tf.cast(window, tf.float64), axis=1), tf.float32)
            window = tf.concat([window[:, 1:], best[:, None]], axis=1)
            return at + 1, window, sums.write(at, best)

        _, _, sums = tf.while_loop(
            lambda at, *_: at < longest,
            step,
            (tf.constant(0), window, sums),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, depth]), None),
        )
        by_row = tf.RaggedTensor.from_tensor(tf.transpose(sums.stack()), stop - first)
        return by_row.values

    def _best(self, totals: tf.Tensor) -> tf.Tensor:
        """Returns the length of the piece that ends at each character, int32 (characters,)."""
        depth = totals.shape[1]

        def better(
            state: tuple[tf.Tensor, tf.Tensor], item: tuple[tf.Tensor, tf.Tensor]
        ) -> tuple[tf.Tensor, tf.Tensor]:
            (best, length), (total, new) = state, item
            wins = total > tf.cast(best, tf.float64)
            return tf.where(wins, tf.cast(total, tf.float32), best), tf.where(wins, new, length)

        best = tf.fill([tf.shape(totals)[0]], -np.float32(np.inf))
        _, length = tf.foldl(
            better,
            (tf.transpose(totals), tf.range(depth, 0, -1)),
            (best, tf.ones_like(best, tf.int32)),
        )
        return length

    def _path(self, length: tf.Tensor, first: tf.Tensor, row_end: tf.Tensor) -> tf.Tensor:
        """Returns whether a piece of the best path ends at each character, bool (characters,)."""
        size = tf.size(length)
        index = tf.range(size)
        is_end = index == row_end - 1
        # Where paths lead, in steps of one piece, then of two, four, ... `size` is nowhere.
        before = tf.where(index - length >= first, index - length, size)

        def step(is_end: tf.Tensor, before: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            reached = marks(tf.gather(before, places(is_end)), size)
            return is_end | reached, tf.gather(tf.concat([before, [size]], 0), before)

        shape = tf.TensorShape([None])
        is_end, _ = tf.while_loop(
            lambda _, before: tf.reduce_any(before < size),
            step,
            (is_end, before),
            shape_invariants=(shape, shape),
        )
        return is_end
