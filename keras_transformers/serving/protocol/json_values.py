"""Parses the JSON of requests and converts its values to tensor elements.

The rules and the messages come from TF Serving's util/json_tensor.cc.
"""

import base64
import binascii
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.protocol.errors import invalid

_SHORT = 200
_TYPE_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


def parse(body: bytes) -> dict[str, Any]:
    """Returns a request's JSON object.

    NaN, Infinity and -Infinity are numbers here, as in TF Serving.

    Raises:
        RequestError: the body is not JSON, or not an object.
    """
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body)
    except RecursionError:
        raise invalid("JSON Parse error: nested too deeply") from None
    except ValueError as error:  # includes UnicodeDecodeError
        raise invalid(f"JSON Parse error: Invalid value: {error}") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shorten(document)} Is not object")
    return document


def signature_name(document: Mapping[str, Any]) -> str:
    """Returns the signature that a request names; "" for the default."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {shorten(document)} not formatted correctly. 'signature_name' key must "
            "be a string value."
        )
    return name


def scalar(value: Json, dtype: tf.DType) -> bool | int | float | bytes:
    """Returns one JSON value as an element of an array of this dtype."""
    if dtype == tf.string:
        if isinstance(value, dict):
            return from_base64(value)
        if isinstance(value, str):
            return encode(value)
    elif dtype == tf.bool:
        if isinstance(value, bool):
            return value
    elif dtype.is_integer and not dtype.is_quantized:
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and dtype.min <= value <= dtype.max
        ):
            return value
    elif dtype.is_floating:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return decimal(value, dtype)
    else:
        raise invalid(
            f"Conversion of JSON Value: {shorten(value)} to type: {type_name(dtype)} is not "
            "implemented"
        )
    raise invalid(
        f"JSON Value: {shorten(value)} Type: {type_of(value)} is not of expected type: "
        f"{type_name(dtype)}"
    )


def scalars(values: Sequence[Json], dtype: tf.DType) -> list[Any] | None:
    """Converts JSON values to elements all at once, if possible, else returns None.

    A request may hold millions of values, for which `scalar` would take minutes.
    """
    kinds = set(map(type, values))
    if dtype == tf.string:
        try:
            return [value.encode("utf-8") for value in values] if kinds <= {str} else None
        except UnicodeEncodeError:
            return None
    if dtype == tf.bool:
        fits = kinds <= {bool}
    elif dtype.is_integer and not dtype.is_quantized:
        fits = kinds <= {int} and _within(values, dtype.min, dtype.max)
    elif dtype.is_floating and kinds <= {int, float}:
        exact, largest = _limits(dtype)
        floats = np.array([value for value in values if type(value) is float])
        too_large = (np.abs(floats) > largest) & ~np.isinf(floats)
        ints = [value for value in values if type(value) is int]
        fits = _within(ints, -exact, exact) and not too_large.any()
        values = list(map(float, values)) if fits else values  # 10 ** 400 is not a float
    else:
        fits = False
    return list(values) if fits else None


def _within(values: Sequence[int], low: int, high: int) -> bool:
    return not values or (low <= min(values) and max(values) <= high)


def _limits(dtype: tf.DType) -> tuple[int, float]:
    """Returns the largest integer and the largest number accepted for a floating dtype."""
    limits = np.finfo(np.float64 if dtype == tf.float64 else np.float32)
    return 2 ** (limits.nmant + 1) - 1, float(limits.max)


def decimal(value: int | float, dtype: tf.DType) -> float:
    """Returns a number as a float if the dtype can hold it; NaN and infinities are kept."""
    exact, largest = _limits(dtype)
    most = exact if isinstance(value, int) else largest
    if abs(value) > most and value not in (float("inf"), float("-inf")):
        raise invalid(
            f"Cannot convert JSON value: {shorten(value)} to {type_name(dtype)} without loss of "
            "precision."
        )
    return float(value)


def is_object(value: Json) -> bool:
    """Returns whether a value is a JSON object other than a binary value."""
    return isinstance(value, dict) and not is_base64(value)


def is_base64(value: Json) -> bool:
    """Returns whether a value is a binary value: {"b64": "..."}."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def from_base64(value: dict[str, Any]) -> bytes:
    """Returns the bytes of a binary value."""
    if not is_base64(value):
        raise invalid(f"JSON Value: {shorten(value)} not formatted correctly for base64 data")
    text = value["b64"]
    try:  # padding may be missing, as in absl::Base64Unescape
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def encode(value: str) -> bytes:
    """Returns a JSON string as UTF-8."""
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        raise invalid(
            f"JSON Value: {shorten(value)} is not Unicode text: half of a surrogate pair; write "
            "the character, or both of its escapes"
        ) from None


def type_of(value: Json) -> str:
    """Returns RapidJSON's name for a value's JSON type."""
    if isinstance(value, bool):
        return str(value)
    names = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}
    return names.get(type(value), "Null")


def type_name(dtype: tf.DType) -> str:
    """Returns a tf.DType's name in TensorFlow's C++."""
    return _TYPE_NAMES.get(dtype.name, dtype.name)


def shorten(value: Json) -> str:
    """Returns a value as truncated text for a message.

    The text is written piece by piece, because a value may be as large as a request.
    """
    try:
        pieces = json.JSONEncoder().iterencode(value)
        return "".join(itertools.islice(pieces, _SHORT))[:_SHORT]
    except (RecursionError, ValueError):  # an integer with very many digits raises ValueError
        return "..."
