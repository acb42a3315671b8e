"""Prepares examples for training: deduplication, overlap counts, reproducible splits."""

import dataclasses
import hashlib
from collections.abc import Mapping

import numpy as np

from keras_transformers.data.text.examples import Examples

__all__ = ["deduplicate", "overlap", "split"]


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """Counts of the examples removed by `deduplicate`."""

    source: str
    repeated: int
    conflicting: int
    samples: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.source}: {self.repeated} repeated examples removed"
        if self.conflicting:
            text += (
                f", and {self.conflicting} whose text has different labels, "
                f"such as {', '.join(map(repr, self.samples))}"
            )
        return text


def deduplicate(examples: Examples) -> tuple[Examples, Duplicates]:
    """Keeps the first example of each text, but none of a text with different labels.

    Texts that differ only in case or spacing count as the same.

    Returns:
        The remaining examples, in order, and counts of the removed ones.
    """
    labels = examples.labels or [""] * len(examples)
    keys = [examples.key(i) for i in range(len(examples))]
    labels_of_key: dict[tuple[str, ...], set[str]] = {}
    first: dict[tuple[str, ...], int] = {}
    for i, (key, label) in enumerate(zip(keys, labels, strict=True)):
        labels_of_key.setdefault(key, set()).add(label)
        first.setdefault(key, i)
    conflicts = {key for key, labels in labels_of_key.items() if len(labels) > 1}
    kept = [i for key, i in first.items() if key not in conflicts]
    conflicting = sum(key in conflicts for key in keys)
    samples = tuple(examples.texts[i] for key, i in first.items() if key in conflicts)[:3]
    repeated = len(examples) - conflicting - len(kept)
    report = Duplicates(examples.source, repeated, conflicting, samples)
    return examples.select(kept), report


def overlap(examples: Examples, others: Examples) -> int:
    """Counts the `examples` that also occur among `others`, ignoring case and spacing."""
    seen = {others.key(i) for i in range(len(others))}
    return sum(examples.key(i) in seen for i in range(len(examples)))


def split(examples: Examples, fractions: Mapping[str, float], *, seed: int) -> dict[str, Examples]:
    """Splits examples so that all parts have the same distribution of labels.

    The split depends only on `seed` and the texts, not on the order of the file or on Python's hash
    seed. Repeated texts may go to different parts: `deduplicate` first.

    Args:
        examples: examples to split.
        fractions: part name -> share; the shares sum to 1.
        seed: different seeds give different splits.

    Returns:
        Part name -> examples, in an order that depends only on `seed` and the texts.

    Raises:
        ValueError: a share is not positive, they do not sum to 1, or a part is empty.
    """
    if any(share <= 0 for share in fractions.values()) or abs(sum(fractions.values()) - 1) > 1e-6:
        raise ValueError(f"shares {dict(fractions)}: each must be above 0, and their sum 1")
    labels = examples.labels or [""] * len(examples)
    digests = [_digest(seed, examples.key(i), labels[i]) for i in range(len(examples))]
    of_label: dict[str, list[int]] = {}
    for i in sorted(range(len(examples)), key=digests.__getitem__):
        of_label.setdefault(labels[i], []).append(i)
    ends = np.cumsum(list(fractions.values()))
    parts: dict[str, list[int]] = {name: [] for name in fractions}
    for indices in of_label.values():
        start = 0
        for name, end in zip(fractions, ends, strict=True):
            stop = round(float(end) * len(indices))
            parts[name] += indices[start:stop]
            start = stop
    for name, indices in parts.items():
        if not indices:
            raise ValueError(
                f"{examples.source}: the {name} split is empty: {len(examples)} examples are too "
                f"few for a share of {fractions[name]:g}"
            )
        indices.sort(key=digests.__getitem__)
    return {
        name: examples.select(indices, f"{examples.source}[{name}]")
        for name, indices in parts.items()
    }


def _digest(seed: int, key: tuple[str, ...], label: str) -> bytes:
    return hashlib.sha256("\0".join((str(seed), *key, label)).encode()).digest()
