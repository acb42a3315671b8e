"""Divides data at random into a part for training and a part for measuring."""

from collections.abc import Sequence

import numpy as np

__all__ = ["at_random"]


def at_random(count: int, share: float, what: str) -> tuple[list[int], list[int]]:
    """Returns the indices of two parts, in random order; the same for the same count and share.

    Args:
        count: number of examples.
        share: the share of the second part, above 0 and below 1.
        what: the source and name of the examples, for the message, such as "a.csv: pairs".

    Raises:
        ValueError: a part would be empty.
    """
    order = np.random.default_rng(0).permutation(count).tolist()
    size = round(share * count)
    if not 0 < size < count:
        raise ValueError(
            f"{what}: a share of {share:g} of {count} leaves one part empty: use another share, "
            "or more data"
        )
    return order[size:], order[:size]


def by_keys(keys: Sequence[str], share: float, what: str) -> tuple[list[int], list[int]]:
    """Returns the indices of two parts, in order, with equal keys in the same part.

    Args:
        keys: the key of each example.
        share: the share of the keys in the second part, above 0 and below 1.
        what: see `at_random`.

    Raises:
        ValueError: a part would be empty.
    """
    distinct = list(dict.fromkeys(keys))
    _, apart = at_random(len(distinct), share, what)
    held_out = {distinct[i] for i in apart}
    parts: tuple[list[int], list[int]] = [], []
    for i, key in enumerate(keys):
        parts[key in held_out].append(i)
    return parts
