"""BPE-dropout: splits the same text into different tokens in each training epoch."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np

_WORD_START = "▁"
_NUM_FIXED = 4 + 256  # special tokens and bytes, which never merge
_DECISIONS = 32  # random bits per word; a rare word with more merges reuses them
_REMEMBERED = 2**18  # cached splits


class BytePairDropout:
    """Skips merges of byte-pair encoding at random (Provilkov et al. 2020).

    A word sometimes becomes one token and sometimes several, so the model learns how they relate.
    Use this for training only; at inference, use `SentencePieceTokenizer.tokenize`.

    SentencePiece also has BPE-dropout, but its random numbers differ between processes; here they
    depend only on the seed. A split depends only on its word and a few random bits, so each is
    computed once and cached, and an epoch costs little more than joining the tokens.

    Args:
        vocabulary: tokens by id. As in SentencePiece, merges are ordered by the id of their result.
            The first 260 are special tokens and bytes, which never merge.
        token_ids: int32 (tokens,), all texts end to end, from `tokenize`.
        row_lengths: (rows,), the number of tokens in each text.
    """

    def __init__(
        self, vocabulary: Sequence[str], token_ids: np.ndarray, row_lengths: np.ndarray
    ) -> None:
        token_ids = np.asarray(token_ids, np.int32)
        starts_word = np.array([token.startswith(_WORD_START) for token in vocabulary])
        fixed = np.arange(len(vocabulary)) < _NUM_FIXED
        rows = np.repeat(np.arange(len(row_lengths)), row_lengths)  # (tokens,)
        # Merges never cross the boundary of a text, a word or a fixed token.
        is_first = starts_word[token_ids] | fixed[token_ids]
        is_first[1:] |= (rows[1:] != rows[:-1]) | fixed[token_ids[:-1]]
        is_first[:1] = True
        bounds = np.append(np.flatnonzero(is_first), len(token_ids)).tolist()
        flat, distinct = token_ids.tolist(), dict[tuple[int, ...], int]()
        words = [
            distinct.setdefault(tuple(flat[start:end]), len(distinct))
            for start, end in itertools.pairwise(bounds)
        ]
        self._num_rows = len(row_lengths)
        self._row_of_word = rows[bounds[:-1]]  # (words,)
        self._words = np.array(words, np.int64)  # (words,), indices into `_distinct`
        self._distinct = list(distinct)

        self._vocabulary = vocabulary
        self._ids = {token: i for i, token in enumerate(vocabulary) if not fixed[i]}
        merges = [
            0 if fixed[word[0]] else sum(len(vocabulary[i]) for i in word) - len(word)
            for word in distinct
        ]
        self._num_merges = np.array(merges, np.int64)  # (distinct words,), without dropout
        self._cut = functools.lru_cache(maxsize=_REMEMBERED)(self._cut_word)

    def __call__(
        self, *, dropout: float, seed: int | Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits all texts into tokens again.

        Args:
            dropout: probability of skipping a merge, from 0 (same as `tokenize`) to 1 (characters);
                0.1 in the paper.
            seed: random seed, such as (seed of the run, epoch).

        Returns:
            Token ids int32 (tokens,), and row lengths (rows,).

        Raises:
            ValueError: `dropout` is out of range.
        """
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"dropout is {dropout}, must be from 0 to 1 (0.1 in the paper)")
        drops = self._decide(np.random.default_rng(seed), dropout)
        keys, choice = np.unique((self._words << _DECISIONS) | drops, return_inverse=True)
        cuts = [self._cut(key >> _DECISIONS, key & (2**_DECISIONS - 1)) for key in keys.tolist()]
        lengths = np.array([len(cut) for cut in cuts], np.int64)
        flat = np.fromiter((i for cut in cuts for i in cut), np.int32, int(lengths.sum()))
        starts = np.cumsum(lengths) - lengths
        word_lengths = lengths[choice]  # (words,)
        skips = starts[choice] - (np.cumsum(word_lengths) - word_lengths)
        positions = np.repeat(skips, word_lengths) + np.arange(word_lengths.sum())
        row_lengths = np.bincount(self._row_of_word, word_lengths, self._num_rows)
        return flat[positions], row_lengths.astype(np.int64)

    def _decide(self, random: np.random.Generator, dropout: float) -> np.ndarray:
        """Draws for each word which of its merges to skip, one bit per merge, in order."""
        drops, kept = np.zeros_like(self._words), np.zeros_like(self._words)
        num_merges = self._num_merges[self._words]
        for bit in range(_DECISIONS):
            # Dropout rarely adds merges to a word. Bits beyond `num_merges` do not matter, so they
            # stay 0, and equal splits mostly have equal bits.
            drop = (random.random(len(drops), np.float32) < dropout) & (kept < num_merges)
            drops |= drop.astype(np.int64) << bit
            kept += ~drop
        return drops

    def _cut_word(self, word: int, drops: int) -> tuple[int, ...]:
        """Merges the characters of a word; a set bit of `drops` skips the next merge."""
        if not drops:
            return self._distinct[word]
        symbols = list("".join(self._vocabulary[i] for i in self._distinct[word]))
        starts = list(range(len(symbols)))
        dropped: set[tuple[int, int, int]] = set()
        while True:
            best, place = len(self._vocabulary), -1
            for i in range(len(symbols) - 1):
                merged = self._ids.get(symbols[i] + symbols[i + 1], best)
                if merged < best and self._span(starts, symbols, i) not in dropped:
                    best, place = merged, i
            if place < 0:
                return tuple(self._ids[symbol] for symbol in symbols)
            drop, drops = drops & 1, (drops >> 1) | (drops & 1) << (_DECISIONS - 1)
            if drop:
                dropped.add(self._span(starts, symbols, place))
            else:
                symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
                del starts[place + 1]

    @staticmethod
    def _span(starts: Sequence[int], symbols: Sequence[str], i: int) -> tuple[int, int, int]:
        return starts[i], starts[i + 1], starts[i + 1] + len(symbols[i + 1])
