"""Makes arrays and tensors that share memory, so that loading copies no weight more than once."""

import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformers.dependencies.untyped import Tensor

__all__: list[str] = []

_ALIGNMENT = 64  # bytes; TensorFlow's tensors start at a multiple of it
_LARGE = 2**20  # bytes
_COLUMNS = 16  # a cache line of float32


def new_array(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Returns an array without values, in memory that a tensor can take over.

    A large one gets all its pages at once, in half the time that getting each at its first use
    takes. NumPy would ask for huge pages, which take four times as long where memory is fragmented.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size >= _LARGE and sys.platform == "linux":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        memory = np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    else:
        memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -_address(memory) % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def copied(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Returns a contiguous copy of an array, of this type; it is a `new_array`.

    NumPy copies a transposed matrix row by row, so each value comes from a different cache line;
    copying a few columns at a time takes an eighth of the time.
    """
    copy = new_array(array.shape, dtype)
    if array.ndim != 2 or array.flags.c_contiguous:
        copy[...] = array
        return copy
    for start in range(0, array.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        copy[:, columns] = array[:, columns]
    return copy


def as_tensor(array: np.ndarray, dtype: str) -> Tensor:
    """Returns an array as a tensor of this type, which takes over the memory of a writeable one."""
    is_own = array.flags.writeable and array.flags.c_contiguous and not _address(array) % _ALIGNMENT
    if not is_own or array.dtype != dtype:
        array = copied(array, dtype)
    if keras.backend.backend() != "tensorflow" or not array.size:
        return keras.ops.convert_to_tensor(array)
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
