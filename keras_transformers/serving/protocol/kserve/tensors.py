"""Converts tensors between numpy and the protocol's three forms: binary, JSON and messages."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.protocol.floats import shortest

BYTES = "BYTES"
# The protocol's name of a type -> numpy's; BYTES are strings.
DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    BYTES: np.dtype(object),
}
_JSON_TYPES: dict[str, set[type]] = {"O": {str}, "b": {bool}, "f": {int, float}}  # others: int
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH = 4  # bytes that say how long an element of BYTES is, little-endian
_MAX_RANK = 32  # numpy's own limit before version 2


def datatype(dtype: "np.dtype | None") -> str:
    """Returns the protocol's name of a dtype; empty if it has none.

    >>> datatype(np.dtype("float32")), datatype(np.dtype(object))
    ('FP32', 'BYTES')
    """
    return "" if dtype is None else _NAMES.get(np.dtype(dtype), "")


def to_binary(array: np.ndarray) -> bytes:
    r"""Returns the elements of an array as bytes, in row-major order.

    >>> to_binary(np.array([b"ab"], object))
    b'\x02\x00\x00\x00ab'
    """
    if array.dtype == object:
        return b"".join(
            len(item).to_bytes(_LENGTH, "little") + item for item in array.reshape(-1).tolist()
        )
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def from_binary(data: bytes, datatype: str, shape: Sequence[int]) -> np.ndarray:
    """Returns the array whose elements are in bytes.

    Raises:
        ValueError: the type is unknown, or the bytes do not fit type and shape.
    """
    dtype, count = _dtype(datatype), _count(shape)
    if datatype == BYTES:
        return _from_binary_strings(data, count, shape)
    if len(data) != count * dtype.itemsize:
        raise ValueError(
            f"{len(data)} bytes, but {datatype} of shape {list(shape)} takes "
            f"{count * dtype.itemsize}"
        )
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def to_json(array: np.ndarray) -> list[Json]:
    """Returns the elements of an array as JSON, in row-major order.

    Floats have the fewest digits that identify them; bytes that are not UTF-8 become U+FFFD.
    """
    flat = array.reshape(-1)
    if array.dtype == object:
        return [item.decode("utf-8", "replace") for item in flat.tolist()]
    return (shortest(flat) if array.dtype.kind == "f" else flat).tolist()


def from_json(data: Sequence[Json], datatype: str, shape: Sequence[int]) -> np.ndarray:
    """Returns the array whose elements are in JSON, nested or in one list.

    Raises:
        ValueError: the type is unknown, or the elements do not fit type and shape.
    """
    dtype, count = _dtype(datatype), _count(shape)
    values = _flat(data)
    if len(values) != count:
        raise ValueError(f"{len(values)} values, but shape {list(shape)} takes {count}")
    return _array(values, datatype, dtype).reshape(shape)


def from_answer(data: Sequence[Json], datatype: str, shape: Sequence[int]) -> np.ndarray:
    """Returns the array whose elements are in a server's JSON, where floats may be NaN.

    Raises:
        ValueError: the type is unknown, or the elements do not fit type and shape.
    """
    values = _flat(data)
    if datatype == BYTES:
        values = [value.encode("utf-8") for value in values]
    return from_values(values, datatype, shape)


def from_values(values: Sequence[Any], datatype: str, shape: Sequence[int]) -> np.ndarray:
    """Returns the array with these elements: bytes for BYTES, else numbers or bool.

    Raises:
        ValueError: the type is unknown, or the elements do not fit type and shape.
    """
    dtype, count = _dtype(datatype), _count(shape)
    if len(values) != count:
        raise ValueError(f"{len(values)} values, but shape {list(shape)} takes {count}")
    if datatype == BYTES:
        strings = np.empty(count, object)
        strings[:] = list(values)
        return strings.reshape(shape)
    array = np.array(values)
    if dtype.kind in "iu" and count:
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"a value does not fit {datatype}")
    return array.astype(dtype).reshape(shape)


def _from_binary_strings(data: bytes, count: int, shape: Sequence[int]) -> np.ndarray:
    items: list[bytes] = []
    start = 0
    while start < len(data):
        end = start + _LENGTH
        size = int.from_bytes(data[start:end], "little")
        if end + size > len(data):
            raise ValueError(f"element {len(items)} of BYTES ends after the data")
        items.append(data[end : end + size])
        start = end + size
    if len(items) != count:
        raise ValueError(f"{len(items)} values, but shape {list(shape)} takes {count}")
    array = np.empty(count, object)
    array[:] = items
    return array.reshape(shape)


def _dtype(datatype: str) -> np.dtype:
    if datatype not in DTYPES:
        raise ValueError(f"datatype {datatype[:40]!r} is none of {', '.join(DTYPES)}")
    return DTYPES[datatype]


def _count(shape: Sequence[int]) -> int:
    if len(shape) > _MAX_RANK or any(size < 0 for size in shape):
        raise ValueError(
            f"shape {list(shape)[:40]}: expected at most {_MAX_RANK} sizes of 0 or more"
        )
    return math.prod(shape)


def _flat(data: Sequence[Json]) -> list[Any]:
    """Returns the values in nested lists, in order."""
    values: list[Any] = list(data)
    while list in set(map(type, values)):
        values = [
            item for value in values for item in (value if isinstance(value, list) else [value])
        ]
    return values


def _array(values: list[Any], datatype: str, dtype: np.dtype) -> np.ndarray:
    """Returns JSON values as an array of one dimension."""
    types: set[type] = _JSON_TYPES.get(dtype.kind, {int})
    if not types >= set(map(type, values)):
        index = next(index for index, value in enumerate(values) if type(value) not in types)
        raise ValueError(f"value {index} is {str(values[index])[:100]!r}, which is not {datatype}")
    if datatype == BYTES:
        strings = np.empty(len(values), object)
        strings[:] = [value.encode("utf-8") for value in values]
        return strings
    if dtype.kind in "iu" and values:
        limits = np.iinfo(dtype)
        for value in (min(values), max(values)):
            if not limits.min <= value <= limits.max:
                raise ValueError(f"{str(value)[:100]} is not within {datatype}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype)
    except OverflowError:  # an int that no float holds
        raise ValueError(f"a value is not within {datatype}") from None
    if dtype.kind == "f" and not np.isfinite(array).all():
        index = int(np.argmin(np.isfinite(array)))
        raise ValueError(
            f"value {index} is {str(values[index])[:100]}, which no finite {datatype} is"
        )
    return array
