"""Plans batches of sequence pairs by their number of tokens, without TensorFlow."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Seed = int | Sequence[int]

# In tokens, added to the lengths before sorting. Of the Multi30k pairs that share a batch of 4,096
# tokens, 31 % share one again in the next epoch without noise, but only 10 % with it.
_NOISE = 2.0


@dataclasses.dataclass(frozen=True)
class TokenLists:
    """Lists of token ids, end to end in one array.

    Attributes:
        values: int32 (tokens,).
        lengths: number of tokens in each list, int64 (rows,).
    """

    values: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The start of each list: int64 (rows,)."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, rows: np.ndarray) -> "TokenLists":
        """Returns the lists at `rows`, indices or a mask, in that order."""
        lengths = self.lengths[rows]
        skips = self.starts[rows] - (np.cumsum(lengths) - lengths)
        return TokenLists(
            self.values[np.repeat(skips, lengths) + np.arange(lengths.sum())], lengths
        )

    def to_padded(self, num_rows: int, length: int, pad_token_id: int) -> np.ndarray:
        """Returns the lists as an int32 array (num_rows, length), padded right and below."""
        padded = np.full((num_rows, length), pad_token_id, np.int32)
        padded[: len(self)][np.arange(length) < self.lengths[:, None]] = self.values
        return padded


class Batch(NamedTuple):
    """The pairs of a batch, and the shape that it is padded to."""

    indices: np.ndarray  # (pairs,)
    num_rows: int  # number of pairs, or more if shapes are fixed; the rest is padding
    source_length: int
    target_length: int

    @property
    def num_positions(self) -> int:
        """Positions on both sides, padded ones included."""
        return self.num_rows * (self.source_length + self.target_length)


def plan_batches(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    batch_tokens: int,
    seed: Seed | None,
    shape_lengths: Sequence[int] | None = None,
    parts: int = 1,
) -> list[Batch]:
    """Divides pairs into batches with about equal numbers of positions, padding included.

    Each pair is in one batch. With a seed, pairs are shuffled and sorted by length plus a little
    noise, so that a batch needs little padding but has other pairs each time; then the batches are
    shuffled.

    Args:
        source_lengths: (pairs,), in tokens.
        target_lengths: (pairs,), in tokens.
        batch_tokens: maximum number of positions in a batch, source and target together, padding
            included.
        seed: the same seed gives the same plan; None sorts by length without shuffling.
        shape_lengths: None pads a batch to its longest source and target. Ascending lengths, such
            as those of `best_limits`, limit the number of shapes (XLA compiles each, and TPUs need
            few): pairs are classified by their longer side, all batches of a class are padded to
            its length on both sides, and the last one is completed with empty rows.
        parts: number of equal parts that batches with `shape_lengths` can be divided into.

    Raises:
        ValueError: a pair takes more than `batch_tokens`, or is longer than the last of
            `shape_lengths`.
    """
    if not len(source_lengths):
        return []
    longest = np.maximum(source_lengths, target_lengths)
    if shape_lengths is not None and longest.max() > shape_lengths[-1]:
        raise ValueError(f"a pair of length {longest.max()} exceeds shape_lengths={shape_lengths}")
    needed = int((source_lengths + target_lengths).max())
    needed = needed if shape_lengths is None else 2 * int(shape_lengths[-1]) * parts
    if needed > batch_tokens:
        raise ValueError(
            f"batch_tokens is {batch_tokens}, but the longest pair takes {needed} positions: "
            "raise it, or lower max_sequence_length to drop such pairs"
        )
    count = len(source_lengths)
    random = None if seed is None else np.random.default_rng(seed)
    order = np.arange(count) if random is None else random.permutation(count)
    if shape_lengths is None:
        noise = np.zeros((2, count)) if random is None else _NOISE * random.random((2, count))
        order = order[_by_length(source_lengths[order], target_lengths[order], noise)]
        batches = _cut_sorted(order, source_lengths, target_lengths, batch_tokens)
    else:
        batches = _cut_classes(order, longest, batch_tokens, shape_lengths, parts)
    if random is None:
        return batches
    return [batches[i] for i in random.permutation(len(batches))]


def _by_length(sources: np.ndarray, targets: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Returns the order (pairs,) of pairs by length plus noise (2, pairs), sources first."""
    noisy_sources, noisy_targets = np.stack([sources, targets]) + noise
    # By target length in bands of two, and within a band by source length, alternately rising and
    # falling, so that neighbours have similar lengths even where two bands meet.
    band = noisy_targets // 2
    return np.lexsort((np.where(band % 2, noisy_sources, -noisy_sources), band))


def _cut_sorted(
    order: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int
) -> list[Batch]:
    """Cuts a sequence of pairs into batches, each padded to its longest source and target."""
    batches, start, source_length, target_length = [], 0, 0, 0
    lengths = zip(source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True)
    for end, (source, target) in enumerate(lengths):
        longer_source, longer_target = max(source_length, source), max(target_length, target)
        if (end - start + 1) * (longer_source + longer_target) > batch_tokens:
            rows = order[start:end]
            batches.append(Batch(rows, len(rows), source_length, target_length))
            start, longer_source, longer_target = end, source, target
        source_length, target_length = longer_source, longer_target
    rows = order[start:]
    return [*batches, Batch(rows, len(rows), source_length, target_length)]


def _cut_classes(
    order: np.ndarray,
    longest: np.ndarray,
    batch_tokens: int,
    shape_lengths: Sequence[int],
    parts: int,
) -> list[Batch]:
    """Divides pairs into length classes, and each class into batches of one shape."""
    class_of = np.searchsorted(shape_lengths, longest[order])
    batches = []
    for number, length in enumerate(shape_lengths):
        members = order[class_of == number]
        num_rows = parts * (batch_tokens // (2 * length * parts))
        batches += [
            Batch(members[start : start + num_rows], num_rows, length, length)
            for start in range(0, len(members), num_rows)
        ]
    return batches
