"""Fits n-gram language models with Kneser-Ney smoothing: a baseline that only counts.

A neural language model should beat it on the same tokens, and beat `unigrams` by more.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["KneserNey"]

# Used if the counts of counts of an order allow no estimate, like KenLM's `--discount_fallback`.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


@dataclasses.dataclass(frozen=True)
class _Grams:
    """Holds all n-grams of one length that occur, numbered in the order of their keys.

    The key of an n-gram combines its first word with the number of the (n-1)-gram of the rest.

    Attributes:
        keys: int64 (grams,), ascending.
        num_rests: number of (n-1)-grams.
        ids: the n-gram that ends at each position of the text, int64 (positions,).
        counts: how often each n-gram occurs, int64 (grams,).
        contexts: the (n-1)-gram that each n-gram starts with, int64 (grams,).
        is_predicted: False for n-grams that end in a start mark, bool (grams,).
    """

    keys: np.ndarray
    num_rests: int
    ids: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    is_predicted: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Level:
    """Extends the probability p of the order below: `shares[gram] + left[context] * p`.

    Attributes:
        keys, num_rests: see `_Grams`.
        shares: the discounted share of each n-gram in its context, float64 (grams + 1,); the last
            entry, 0, is for n-grams that never occurred.
        left: the share that each context leaves to the order below, float64 (contexts + 1,); the
            last entry, 1, is for contexts that never occurred.
    """

    keys: np.ndarray
    num_rests: int
    shares: np.ndarray
    left: np.ndarray


class KneserNey:
    """Smooths n-grams with interpolated modified Kneser-Ney (Chen & Goodman 1998).

    The paper is "An Empirical Study of Smoothing". Let u be the `order` - 1 tokens before w, u' the
    same without the first token, c(u w) the count of u w, and N_r(u) the number of different tokens
    that follow u exactly r times. Then:

        p(w | u) = (c(u w) - D(c(u w))) / c(u .) + gamma(u) p(w | u')
        gamma(u) = (D_1 N_1(u) + D_2 N_2(u) + D_3 N_3+(u)) / c(u .)

    and p(w | u) = p(w | u') if u never occurred. Below the highest order, c(u w) is the number of
    different tokens that precede u w. The lowest order falls back on 1 / vocabulary_size, so that
    no token is impossible. D_1, D_2 and D_3 (for counts of 3 and more) are estimated for each order
    from the numbers n_r of n-grams with count r: D_r = r - (r + 1) Y n_{r+1} / n_r, with
    Y = n_1 / (n_1 + 2 n_2). If an n_r is 0 or a discount is not between 0 and r, as in tiny texts,
    the order uses `FALLBACK_DISCOUNTS`.

    `order` - 1 start marks precede each sequence. They are never predicted, and they keep sequences
    independent of each other. For a backward model, fit and score reversed sequences.

    Args:
        order: n, the length of the longest n-grams in tokens; 1 uses no context.
        discounts: D_1, D_2 and D_3 for all orders; None estimates them.

    Attributes:
        discounts: after `fit`, three discounts for each order from 1.

    Raises:
        ValueError: the order is below 1, or the discounts are not three numbers, the r-th from 0
            to r.

    Example:
        >>> model = KneserNey(order=2).fit([[0, 1, 2, 0, 1], [0, 1, 1]], 4)
        >>> np.exp(model.log_probabilities([0, 1, 3])).round(3)
        array([0.662, 0.662, 0.062])
    """

    def __init__(self, *, order: int, discounts: Sequence[float] | None = None) -> None:
        if order < 1:
            raise ValueError(f"order={order}: must be at least 1")
        self.order = order
        self._discounts = None if discounts is None else tuple(discounts)
        if self._discounts is not None and not _are_discounts(self._discounts):
            raise ValueError(
                f"discounts={discounts}: expected D_1, D_2 and D_3, from 0 to at most 1, 2 and 3"
            )
        self.discounts: list[tuple[float, ...]] = []
        self.vocabulary_size = 0
        self._levels: list[_Level] = []

    def fit(self, sequences: Iterable[ArrayLike], vocabulary_size: int) -> "KneserNey":
        """Counts the n-grams of a text.

        Args:
            sequences: token ids, each an array or list of ints (length,).
            vocabulary_size: number of different tokens; ids must be below it.

        Returns:
            The model itself.

        Raises:
            ValueError: there are no tokens, or an id is outside the vocabulary.
        """
        self.vocabulary_size = vocabulary_size
        marked = [self._marked(sequence) for sequence in sequences]
        if all(len(words) < self.order for words in marked):
            raise ValueError("there are no tokens to fit: pass sequences of token ids")
        words = np.concatenate(marked)
        orders = self._count(words)
        self.discounts, self._levels = [], []
        for number, grams in enumerate(orders):
            counts = grams.counts
            if number + 1 < len(orders):  # count the different tokens before each n-gram
                longer = orders[number + 1]
                rests = longer.keys[longer.is_predicted] % longer.num_rests
                counts = np.bincount(rests, minlength=len(grams.keys))
            self._add_level(grams, counts)
        return self

    def log_probabilities(self, token_ids: ArrayLike) -> np.ndarray:
        """Returns the log probability of each token of a sequence given the tokens before it.

        Args:
            token_ids: a whole sequence, ints (length,).

        Returns:
            float64 (length,), in nats. The perplexity is exp(-mean).

        Raises:
            ValueError: `fit` was not called, or an id is outside the vocabulary.
        """
        if not self._levels:
            raise ValueError("the model is not fitted yet: call fit first")
        words = self._marked(token_ids)
        ids = np.zeros_like(words)  # the only 0-gram
        probabilities = np.full(len(words), 1.0 / self.vocabulary_size)
        for number, level in enumerate(self._levels):
            contexts = np.concatenate([[-1], ids[:-1]]) if number else ids
            ids = _find(level, self._firsts(words, number), ids)
            probabilities = level.shares[ids] + level.left[contexts] * probabilities
        return np.log(probabilities[self.order - 1 :])

    def _marked(self, token_ids: ArrayLike) -> np.ndarray:
        """Puts start marks, whose id is `vocabulary_size`, before a sequence."""
        words = np.asarray(token_ids)
        if words.ndim != 1 or (words.size and words.dtype.kind not in "iu"):
            raise ValueError(
                f"token ids of shape {words.shape} and type {words.dtype}: expected ints (length,)"
            )
        if words.size and not 0 <= words.min() <= words.max() < self.vocabulary_size:
            raise ValueError(
                f"token ids are {words.min()} to {words.max()}; expected 0 to "
                f"{self.vocabulary_size - 1}"
            )
        marks = np.full(self.order - 1, self.vocabulary_size)
        return np.concatenate([marks, words]).astype(np.int64)

    def _firsts(self, words: np.ndarray, distance: int) -> np.ndarray:
        """Returns the word `distance` before each position; only marks precede a mark."""
        mark = self.vocabulary_size
        shifted = np.concatenate([np.full(distance, mark), words])[: len(words)]
        return np.where(words == mark, mark, shifted)

    def _count(self, words: np.ndarray) -> list[_Grams]:
        """Counts all n-grams of 1 to `order` tokens."""
        orders: list[_Grams] = []
        ids, num_rests = np.zeros(len(words), np.int64), 1
        for number in range(self.order):
            ids_before = ids
            keys, positions, ids, counts = np.unique(
                self._firsts(words, number) * num_rests + ids,
                return_index=True,
                return_inverse=True,
                return_counts=True,
            )
            is_predicted = words[positions] < self.vocabulary_size
            # Position 0 of the text has a mark or, for order 1, needs no context.
            contexts = ids_before[positions - 1] if number else np.zeros(len(keys), np.int64)
            orders.append(_Grams(keys, num_rests, ids, counts, contexts, is_predicted))
            num_rests = len(keys)
        return orders

    def _add_level(self, grams: _Grams, counts: np.ndarray) -> None:
        """Turns counts of n-grams into probabilities."""
        chosen = self._discounts or _estimated_discounts(counts[grams.is_predicted])
        discounts = np.array([0.0, *chosen])[np.minimum(counts, 3)] * grams.is_predicted
        counts = counts * grams.is_predicted
        num_contexts = len(self._levels[-1].keys) if self._levels else 1
        total = np.bincount(grams.contexts, counts, minlength=num_contexts)
        taken = np.bincount(grams.contexts, discounts, minlength=num_contexts)
        left = np.divide(taken, total, out=np.ones(num_contexts), where=total > 0)
        probabilities = (counts - discounts) / np.maximum(total[grams.contexts], 1)
        self.discounts.append(chosen)
        self._levels.append(
            _Level(grams.keys, grams.num_rests, np.append(probabilities, 0.0), np.append(left, 1.0))
        )


def _find(level: _Level, firsts: np.ndarray, rests: np.ndarray) -> np.ndarray:
    """Returns the numbers of n-grams; -1 for those that never occurred."""
    keys = firsts * level.num_rests + rests
    ids = np.minimum(np.searchsorted(level.keys, keys), len(level.keys) - 1)
    return np.where((rests >= 0) & (level.keys[ids] == keys), ids, -1)


def _estimated_discounts(counts: np.ndarray) -> tuple[float, ...]:
    """Estimates D_1, D_2 and D_3 with equation 26 of Chen & Goodman."""
    n1, n2, n3, n4 = (int(np.sum(counts == r)) for r in range(1, 5))
    if not (n1 and n2 and n3 and n4):
        return FALLBACK_DISCOUNTS
    share = n1 / (n1 + 2 * n2)
    discounts = tuple(
        r - (r + 1) * share * b / a for r, a, b in ((1, n1, n2), (2, n2, n3), (3, n3, n4))
    )
    return discounts if _are_discounts(discounts) else FALLBACK_DISCOUNTS


def _are_discounts(values: Sequence[float]) -> bool:
    return len(values) == 3 and all(0 <= value <= r for r, value in enumerate(values, start=1))
