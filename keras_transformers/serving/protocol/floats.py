"""Writes floats with the fewest digits; it needs no TensorFlow."""

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
