"""Merges characters into pieces, the best piece first, with TensorFlow's own ops."""

import itertools
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.described.text import CODES, Text, before, numbered
from keras_transformers.tokenizers.described.trie import (
    NOTHING,
    Trie,
    leftmost,
    row_bounds,
)
from keras_transformers.tokenizers.tensors import kept, places, searchsorted

_NEVER = np.iinfo(np.int32).max  # rank of a pair that does not merge
_PLACES = 1 << 32  # more than there are places


class PieceMerges:
    """SentencePiece's byte pairs (`SampleEncode` in bpe_model.cc).

    Of all neighbours that together are a piece, those of the best score become one, the leftmost
    of equal ones first. Only neighbours matter, so the text is cut where no piece reaches across,
    and all its segments take one step at a time.

    Args:
        scores: piece -> score.
        ids: piece -> id.
        whole: user-defined symbols, which do not merge; the longest one at each place.
        unknown_id: the id of characters that are no pieces.
    """

    def __init__(
        self,
        scores: Mapping[str, float],
        ids: Mapping[str, int],
        *,
        whole: Collection[str],
        unknown_id: int,
    ) -> None:
        characters = sorted({character for piece in scores for character in piece})
        symbols = list(dict.fromkeys([*scores, *characters]))
        number = {symbol: place for place, symbol in enumerate(symbols)}
        order = {score: rank for rank, score in enumerate(sorted(set(scores.values()))[::-1])}
        pairs, ranks, merged = [np.iinfo(np.int64).max], [_NEVER], [0]
        self._count = len(symbols)
        for piece, score in scores.items():
            for at in range(1, len(piece)):
                left, right = number.get(piece[:at]), number.get(piece[at:])
                if left is not None and right is not None:
                    pairs.append(left * self._count + right)
                    ranks.append(order[score])
                    merged.append(number[piece])
        sort = np.argsort(pairs)
        self._pairs = tf.constant(np.array(pairs)[sort], tf.int64)
        self._ranks = tf.constant(np.array(ranks)[sort], tf.int32)
        self._merged = tf.constant(np.array(merged)[sort], tf.int32)
        self._codes = tf.constant([*map(ord, characters), CODES], tf.int32)
        unknown = self._count  # the symbol of a character in no piece
        self._symbols = tf.constant([*(number[c] for c in characters), unknown], tf.int32)
        self._ids = tf.constant([*(ids.get(s, unknown_id) for s in symbols), unknown_id], tf.int32)
        joints = {ord(a) * CODES + ord(b) for p in scores for a, b in itertools.pairwise(p)}
        self._joints = tf.constant([*sorted(joints), tf.int64.max], tf.int64)
        self._whole = Trie(list(whole)) if whole else None
        self._whole_symbols = tf.constant([number[symbol] for symbol in whole], tf.int32)

    def __call__(self, text: Text) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits texts into pieces.

        Returns:
            The index of each piece's first and last character and its id, int32 (pieces,).
        """
        size = tf.size(text.codes)
        place = searchsorted(self._codes, text.codes)
        symbol = tf.gather(self._symbols, place)
        symbol = tf.where(tf.gather(self._codes, place) == text.codes, symbol, self._count)
        codes = tf.cast(text.codes, tf.int64)
        pair = before(codes, 0) * CODES + codes
        joined = tf.gather(self._joints, searchsorted(self._joints, pair)) == pair
        cuts = text.begins() | ~joined
        firsts = tf.range(size)
        if self._whole is not None:
            first, row, row_end = row_bounds(text)
            string, end = self._whole.longest(text, row_end)
            chosen = leftmost(string != NOTHING, end, row, tf.size(first))
            stop = tf.gather(
                tf.concat([[0], kept(end, chosen)], 0), tf.cumsum(tf.cast(chosen, tf.int32))
            )
            inside = firsts < stop  # of a whole symbol
            cuts |= inside | before(inside, False)
            whole = tf.gather(self._whole_symbols, tf.maximum(string, 0))
            symbol = tf.where(chosen, whole, symbol)
            firsts = places(chosen | ~inside, tf.int32)
        segments = tf.gather(numbered(cuts), firsts)
        symbol, firsts = self._merge(tf.gather(symbol, firsts), firsts, segments)
        lasts = tf.concat([firsts, [size]], 0)[1:] - 1
        return firsts, lasts, tf.gather(self._ids, symbol)

    def _merge(
        self, symbols: tf.Tensor, firsts: tf.Tensor, segments: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges until nothing is left to merge; `firsts` are the symbols' first characters."""

        def once(
            _: tf.Tensor, symbols: tf.Tensor, firsts: tf.Tensor, segments: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            pairs = tf.cast(symbols[:-1], tf.int64) * self._count + tf.cast(symbols[1:], tf.int64)
            place = searchsorted(self._pairs, pairs)
            merges = (tf.gather(self._pairs, place) == pairs) & (segments[:-1] == segments[1:])
            at = places(merges, tf.int32)
            place, segment = tf.gather(place, at), tf.gather(segments, at)
            # The rank, then the place, in one number; the best of each segment.
            order = tf.cast(tf.gather(self._ranks, place), tf.int64) * _PLACES
            order += tf.cast(at, tf.int64)
            best = tf.math.unsorted_segment_min(order, segment, segments[-1] + 1)
            wins = places(tf.gather(best, segment) == order)
            at = tf.gather(at, wins)
            merged = tf.gather(self._merged, tf.gather(place, wins))
            symbols = tf.tensor_scatter_nd_update(symbols, at[:, None], merged)
            gone = tf.tensor_scatter_nd_update(
                tf.fill(tf.shape(symbols), False), at[:, None] + 1, tf.fill(tf.shape(at), True)
            )
            stays = places(~gone)
            return (
                tf.size(at) > 0,
                *(tf.gather(column, stays) for column in (symbols, firsts, segments)),
            )

        many = tf.TensorShape([None])
        _, symbols, firsts, _ = tf.while_loop(
            lambda goes_on, *_: goes_on,
            once,
            (tf.size(symbols) > 0, symbols, firsts, segments),
            shape_invariants=(tf.TensorShape([]), many, many, many),
        )
        return symbols, firsts
