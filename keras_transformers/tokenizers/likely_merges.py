"""Learns the merges of WordPiece: the pair that raises the text's likelihood most comes first."""

import collections
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

__all__: list[str] = []

CONTINUES = "##"  # starts the pieces inside a word

_MOST_OUTDATED = 4  # entries of the heap per pair, before those that are outdated are dropped

Pair = tuple[int, int]


class Candidate(NamedTuple):
    """A pair of pieces to merge; the smallest candidate is the best.

    Attributes:
        score: minus count(left right) / (count(left) count(right)).
        frequency: minus how often the pair occurs; of equal scores the more frequent pair comes
            first, then the first in alphabetical order, so that the same text gives the same
            merges.
        names: the two pieces.
        pair: their numbers.
    """

    score: float
    frequency: int
    names: tuple[str, str]
    pair: Pair


class LikelyMerges:
    """Iterates over new pieces of words, each merged from the likeliest pair of adjacent ones.

    If pieces were drawn independently, each by its share of the text, a pair would be likelier as
    one piece by count(pair) / (count(left) count(right)), up to a constant (Schuster & Nakajima
    2012, "Japanese and Korean Voice Search", section 3). Byte-pair encoding compares count(pair).

    Only pairs whose counts a merge changes are scored again, so 30,000 pieces of a few megabytes of
    text take less than a minute.

    Args:
        words: word -> how often it occurs.
        min_frequency: how often a pair must occur to be merged.

    Example:
        >>> list(LikelyMerges({"ab": 3, "ac": 4, "xy": 2}, min_frequency=2))
        ['xy', 'ac', 'ab']
    """

    def __init__(self, words: Mapping[str, int], *, min_frequency: int) -> None:
        self._min_frequency = min_frequency
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._words = [self._characters(word) for word in words]
        self._frequencies = list(words.values())
        self._counts: collections.Counter[int] = collections.Counter()  # of pieces
        self._pairs: collections.Counter[Pair] = collections.Counter()
        self._words_with: dict[Pair, set[int]] = collections.defaultdict(set)  # or once had
        self._pairs_with: dict[int, set[Pair]] = collections.defaultdict(set)  # likewise
        self._heap: list[Candidate] = []
        for index in range(len(self._words)):
            self._add(index)
        self._push(self._pairs)

    def __iter__(self) -> Iterator[str]:
        while self._heap:
            best = heapq.heappop(self._heap)
            # A change that improves a pair's score pushes it again; after other changes, its old
            # entry is too good, and is corrected here.
            if (now := self._candidate(best.pair)) == best:
                name = best.names[0] + best.names[1].removeprefix(CONTINUES)
                is_new = name not in self._numbers
                self._merge(best.pair, self._number(name))
                if is_new:  # otherwise two other pieces have already become this one
                    yield name
            elif now is not None and now > best:
                heapq.heappush(self._heap, now)

    def _characters(self, word: str) -> list[int]:
        return [self._number(c if i == 0 else CONTINUES + c) for i, c in enumerate(word)]

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._names)
            self._names.append(name)
        return self._numbers[name]

    def _add(self, index: int, sign: int = 1) -> set[Pair]:
        """Counts the pieces and pairs of a word, or with a sign of -1 uncounts them."""
        pieces, times = self._words[index], sign * self._frequencies[index]
        for piece in pieces:
            self._counts[piece] += times
        pairs = list(itertools.pairwise(pieces))
        for pair in pairs:
            self._pairs[pair] += times
            if sign > 0:
                self._words_with[pair].add(index)
                for piece in pair:
                    self._pairs_with[piece].add(pair)
        return set(pairs)

    def _merge(self, pair: Pair, merged: int) -> None:
        changed: set[Pair] = set()
        for index in self._words_with.pop(pair):
            changed |= self._add(index, -1)
            self._words[index] = _merged(self._words[index], pair, merged)
            changed |= self._add(index)
        for piece in pair:  # they are rarer now, so all their pairs score higher
            changed |= self._pairs_with[piece]
        for gone in [pair for pair in changed if not self._pairs[pair]]:
            changed.remove(gone)
            del self._pairs[gone]
            for piece in gone:
                self._pairs_with[piece].discard(gone)
        if len(self._heap) > _MOST_OUTDATED * len(self._pairs):
            self._heap, changed = [], set(self._pairs)
        self._push(changed)

    def _push(self, pairs: Iterable[Pair]) -> None:
        for candidate in map(self._candidate, pairs):
            if candidate is not None:
                heapq.heappush(self._heap, candidate)

    def _candidate(self, pair: Pair) -> Candidate | None:
        """Returns the pair with its present score; None if it is too rare to be merged."""
        count = self._pairs[pair]
        if count < self._min_frequency or not count:
            return None
        left, right = pair
        score = count / (self._counts[left] * self._counts[right])
        return Candidate(-score, -count, (self._names[left], self._names[right]), pair)


def _merged(pieces: list[int], pair: Pair, merged: int) -> list[int]:
    result, index = [], 0
    while index < len(pieces):
        is_pair = tuple(pieces[index : index + 2]) == pair
        result.append(merged if is_pair else pieces[index])
        index += 2 if is_pair else 1
    return result
