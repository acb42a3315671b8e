"""Applies the merges of a byte-pair vocabulary to many words at once, in the graph."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.byte_pairs.gpt2_words import shifted
from keras_transformers.tokenizers.tensors import places, searchsorted

__all__: list[str] = []

_NEVER = np.iinfo(np.int32).max  # rank of a pair that does not merge


class Merges:
    """Merges the tokens of words, the earliest merge of the vocabulary first.

    Args:
        merges: (left, right, token that both become), earlier ones first; the pairs differ.
        vocabulary_size: more than any id.
    """

    def __init__(self, merges: Sequence[tuple[int, int, int]], *, vocabulary_size: int) -> None:
        table = np.array(merges, np.int64).reshape(-1, 3)
        pairs = table[:, 0] * vocabulary_size + table[:, 1]
        order = np.argsort(pairs)
        # Sorted by pair, with an end that no pair reaches, so that an empty table works too.
        self._pairs = tf.constant([*pairs[order], tf.int64.max], tf.int64)
        self._ranks = tf.constant([*order, _NEVER], tf.int32)
        self._merged = tf.constant([*table[order, 2], 0], tf.int32)
        self._vocabulary_size = vocabulary_size

    def __call__(self, ids: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges until no merge is left.

        Args:
            ids: int32 (tokens,), the tokens of all words end to end.
            words: int32 (tokens,), the number of each token's word, ascending.

        Returns:
            The remaining tokens, their words, and the index in `ids` of the first token that each
            was made from, int32 (remaining tokens,).
        """
        shape = tf.TensorShape([None])
        _, *columns = tf.while_loop(
            lambda goes_on, *_: goes_on,
            lambda _, *tokens: self._once(*tokens),
            (tf.constant(True), ids, words, tf.range(tf.size(ids))),
            shape_invariants=(tf.TensorShape([]), shape, shape, shape),
        )
        return tuple(columns)

    def _once(self, ids: tf.Tensor, words: tf.Tensor, firsts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Applies one merge in each word, to every occurrence of its pair."""
        pairs = tf.cast(ids[:-1], tf.int64) * self._vocabulary_size + tf.cast(ids[1:], tf.int64)
        merge = searchsorted(self._pairs, pairs)
        mergeable = (tf.gather(self._pairs, merge) == pairs) & (words[:-1] == words[1:])
        ranks = tf.where(mergeable, tf.gather(self._ranks, merge), _NEVER)
        earliest = tf.math.segment_min(ranks, words[:-1])  # (words,)
        merges = mergeable & (ranks == tf.gather(earliest, words[:-1]))
        merges &= _distance_from_start(merges) % 2 == 0  # in "aaa" merge the first two
        ids = tf.concat([tf.where(merges, tf.gather(self._merged, merge), ids[:-1]), ids[-1:]], 0)
        stays = places(tf.logical_not(tf.concat([[False], merges], 0)[: tf.size(ids)]))
        return (
            tf.reduce_any(mergeable),
            tf.gather(ids, stays),
            tf.gather(words, stays),
            tf.gather(firsts, stays),
        )


def _distance_from_start(flags: tf.Tensor) -> tf.Tensor:
    """Returns each True's distance from the start of its run, int32; meaningless elsewhere."""
    starts = flags & tf.logical_not(shifted(flags, 1, False))
    first = tf.concat([places(starts, tf.int32), [0]], 0)
    run = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    return tf.range(tf.size(flags)) - tf.gather(first, run)
