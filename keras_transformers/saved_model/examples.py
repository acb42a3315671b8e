"""Reads and writes the examples in an export's metadata: arrays as JSON values."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_transformers.dependencies.untyped import Json

Arrays = Mapping[str, np.ndarray]


def stored_examples(
    metadata: Mapping[str, Any], name: str
) -> Iterator[dict[str, dict[str, np.ndarray]]]:
    """Yields a signature's examples, each {"inputs": name -> array, "outputs": name -> array}.

    The arrays are cast to the signature's types, because our first exports stored wider ones.
    """
    signature = metadata["signatures"][name]
    for example in signature["examples"]:
        yield {
            side: {
                key: _as_type(decode_array(value), signature[side][key]["dtype"])
                for key, value in example[side].items()
            }
            for side in ("inputs", "outputs")
        }


def num_rows(arrays: Arrays) -> int:
    """Returns the number of rows in a batch: its first dimension, or the smallest if they vary."""
    return min((len(value) if value.ndim else 0 for value in arrays.values()), default=0)


def level(left: Arrays, right: Arrays) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Brings outputs with the same names to the same shapes.

    A graph pads rows to the longest one in their batch. Here strings, integers and booleans are
    padded further with "", 0 or False, as the graph must do; floats are cut, because some are
    meaningless beyond the end of their row.
    """
    sides: tuple[dict[str, np.ndarray], ...] = (dict(left), dict(right))
    for name in set(left) & set(right):
        if left[name].ndim != right[name].ndim:
            continue
        least, most = (f(left[name].shape, right[name].shape) for f in (np.minimum, np.maximum))
        for side in sides:
            array = side[name]
            if array.dtype.kind == "f":
                side[name] = array[tuple(map(slice, least))]
            else:
                missing = [(0, int(extra)) for extra in most - array.shape]
                filler: Any = b"" if array.dtype == object else 0
                side[name] = np.pad(array, missing, constant_values=filler)
    return sides[0], sides[1]


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """Encodes an array as JSON: dtype, shape, flat values; non-UTF-8 bytes as {"b64": ...}."""
    strings, values = array.dtype == object, array.ravel().tolist()
    return {
        "dtype": "string" if strings else array.dtype.name,
        "shape": list(array.shape),
        "values": [_encode_string(value) for value in values] if strings else values,
    }


def decode_array(encoded: Mapping[str, Any]) -> np.ndarray:
    """Inverts `encode_array`; strings become bytes in an array of dtype object."""
    strings, values = encoded["dtype"] == "string", encoded["values"]
    if strings:
        values = [_decode_string(value) for value in values]
    dtype = object if strings else encoded["dtype"]
    return np.array(values, dtype=dtype).reshape(encoded["shape"])


def first_row(encoded: Mapping[str, Any]) -> Json:
    """Returns the first row of an array from `encode_array` as JSON values; None without rows."""
    array = np.empty(len(encoded["values"]), object)
    array[:] = encoded["values"]
    array = array.reshape(encoded["shape"])
    row = array[0] if len(array) else None
    return row.tolist() if isinstance(row, np.ndarray) else row


def _as_type(array: np.ndarray, dtype: str) -> np.ndarray:
    return array if dtype == "string" else array.astype(dtype)


def _encode_string(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _decode_string(value: str | Mapping[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"])
