"""Divides data at random into what is trained on and what is measured on."""

import numpy as np

__all__: list[str] = []


def at_random(count: int, share: float, what: str) -> tuple[list[int], list[int]]:
    """Returns the indices of two parts; the same for the same count and share.

    Args:
        count: number of examples.
        share: of the second part, above 0 and below 1.
        what: what the examples are called, for the message.

    Raises:
        ValueError: a part would be empty.
    """
    order = np.random.default_rng(0).permutation(count).tolist()
    size = round(share * count)
    if not 0 < size < count:
        raise ValueError(
            f"validation={share:g} of {count} {what} leaves one part empty: give another share, or "
            "validation data"
        )
    return order[size:], order[:size]
