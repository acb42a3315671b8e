"""Writes float32 values with the fewest digits that identify them, without TensorFlow."""

from collections.abc import Sequence

import numpy as np


def shortest(array: np.ndarray) -> np.ndarray:
    """Returns floats as float64 that print with the fewest digits that identify the float.

    >>> shortest(np.array([0.2, 1e-5], "float32")).tolist()
    [0.2, 1e-05]
    """
    if array.dtype == np.float64:
        return array
    if array.dtype != np.float16:
        array = array.astype(np.float32)  # bfloat16 has no short form in numpy
    return array.astype("U").astype(np.float64)


def shorten_floats(values: Sequence[float]) -> list[float]:
    """Returns float32 values as floats that print with the fewest digits."""
    return shortest(np.asarray(values, np.float32)).tolist()
