"""Converts JSON to tensors and back, as in TF Serving's REST API.

https://www.tensorflow.org/tfx/serving/api_rest documents it; what that omits, including the
messages, follows TF Serving's util/json_tensor.cc.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from keras_transformers.serving.protocol.errors import RequestError, invalid
from keras_transformers.serving.protocol.floats import shortest
from keras_transformers.serving.protocol.json_values import (
    is_object,
    scalar,
    scalars,
    shorten,
    type_name,
)
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo

Format = Literal["row", "column"]

_MAX_RANK = 32  # numpy's own limit before version 2
_BYTES_SUFFIX = "_bytes"  # suffix of outputs that hold binary values


def read_inputs(
    document: Mapping[str, Any], signature: SignatureInfo
) -> tuple[dict[str, Any], Format]:
    """Returns the tensors of a Predict request.

    Args:
        document: the request, with `instances` (a list of rows) or `inputs` (columns).
        signature: the signature to run.

    Returns:
        Input name -> array, and the format of the answer.

    Raises:
        RequestError: the document does not fit the format or the signature.
    """
    if ("instances" in document) == ("inputs" in document):
        if "inputs" in document:
            raise invalid(
                f"JSON Value: {shorten(document)} Not formatted correctly expecting only one of "
                "'inputs' or 'instances' keys to exist"
            )
        raise invalid("Missing 'inputs' or 'instances' key")
    try:
        if "inputs" in document:
            return _columns(document["inputs"], signature), "column"
        return _rows(document["instances"], signature), "row"
    except RecursionError:
        raise invalid("JSON Value is nested too deeply") from None


def write_outputs(outputs: Arrays, format: Format) -> dict[str, Any]:
    """Returns the answer to a Predict request as JSON values.

    Args:
        outputs: name -> array; the answer leaves out the name of a single output.
        format: the format of the request.

    Raises:
        RequestError: JSON cannot express a dtype, or rows have outputs of different lengths.
    """
    if format == "row":
        _check_rows(outputs)
    columns = {name: _plain(name, outputs[name]) for name in sorted(outputs)}
    if len(columns) == 1:
        (values,) = columns.values()
        return {"predictions" if format == "row" else "outputs": values}
    if format == "column":
        return {"outputs": columns}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}


def _check_rows(outputs: Arrays) -> None:
    size = None
    for name, array in sorted(outputs.items()):
        if not array.ndim:
            raise invalid(f"Tensor name: {name} has no shape information")
        if size is not None and array.shape[0] != size:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} expecting: "
                f"{size}"
            )
        size = array.shape[0]


def _plain(name: str, array: np.ndarray) -> Any:
    """Returns an array as nested lists of JSON values."""
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype == object:
        as_bytes = name.endswith(_BYTES_SUFFIX)
        flat = [_plain_bytes(value, as_bytes=as_bytes) for value in array.reshape(-1)]
        return _nested(flat, array.shape)
    dtype = tf.as_dtype(array.dtype)
    if not dtype.is_floating:
        raise invalid(f"Failed to write JSON value for tensor type: {type_name(dtype)}")
    return shortest(array).tolist()


def _plain_bytes(value: bytes, *, as_bytes: bool) -> Any:
    if as_bytes:
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value.decode("utf-8", "replace")  # TF Serving writes broken JSON here


def _nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """Nests a flat list according to a shape; numpy cannot, because elements may be dicts."""
    if not shape:
        return flat[0]
    for size in reversed(shape[1:]):
        count = len(flat) // size if size else int(np.prod(shape[: shape.index(0)]))
        flat = [flat[i * size : (i + 1) * size] for i in range(count)]
    return flat


def _rows(instances: Any, signature: SignatureInfo) -> dict[str, Any]:
    """Returns the `instances` of a request as columns."""
    if not isinstance(instances, list):
        raise invalid(f"JSON Value: {shorten(instances)} Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid("JSON Value: {} No values in 'instances' array")
    named = is_object(instances[0])
    if not named and len(signature.inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    columns: dict[str, list[Any]] = {name: [] for name in signature.inputs}
    if not named:
        for number, row in enumerate(instances):
            if is_object(row):
                raise invalid(f"Expecting value/list but got object at item {number} of input list")
        columns = dict.fromkeys(columns, instances)
    else:
        for number, row in enumerate(instances):
            if not is_object(row):
                raise invalid(f"Expecting object but got list at item {number} of input list")
            if row.keys() != columns.keys():
                raise invalid(
                    f"Failed to process element: {number} of 'instances' list. JSON object: "
                    f"{shorten(row)} keys must be equal to: {','.join(sorted(columns))}"
                )
            for name, value in row.items():
                columns[name].append(value)
    return {
        name: _stacked(name, column, signature.inputs[name].dtype, named=named)
        for name, column in columns.items()
    }


def _stacked(name: str, rows: Sequence[Any], dtype: Any, *, named: bool) -> np.ndarray:
    """Returns rows of the same shape as one array."""
    numbers = scalars(rows, dtype)
    if numbers is not None:
        return _array(numbers, (len(rows),), dtype)
    first: tuple[int, ...] | None = None
    flat: list[Any] = []
    for number, row in enumerate(rows):
        try:
            shape = _shape(row)
            before = len(flat)
            _fill(row, shape, dtype, flat)
            first = shape if first is None else first
            size = len(flat) - before
            if size != math.prod(first):
                raise invalid(f"Expecting tensor size: {math.prod(first)} but got: {size}")
            if shape != first:
                raise invalid(f"Expecting shape {_brackets(first)} but got: {_brackets(shape)}")
        except RequestError as error:
            key = f" key: {name}" if named else ""
            raise invalid(
                f"Failed to process element: {number}{key} of 'instances' list. Error: {error}"
            ) from error
    return _array(flat, (len(rows), *(first or ())), dtype)


def _columns(inputs: Any, signature: SignatureInfo) -> dict[str, Any]:
    """Returns the columns of a request's `inputs`: an object of columns, or the only column."""
    if not is_object(inputs):
        if len(signature.inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        inputs = {next(iter(signature.inputs)): inputs}
    extra = sorted(inputs.keys() - signature.inputs.keys())
    if extra:  # TF Serving drops them silently
        raise invalid(f"'inputs' object has no named input of the signature in: {extra[0]}"[:300])
    arrays = {}
    for name, info in signature.inputs.items():
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        flat: list[Any] = []
        shape = _shape(inputs[name])
        _fill(inputs[name], shape, info.dtype, flat)
        arrays[name] = _array(flat, shape, info.dtype)
    return arrays


def _shape(value: Any) -> tuple[int, ...]:
    """Returns the shape of nested lists, from their first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _fill(value: Any, shape: tuple[int, ...], dtype: Any, flat: list[Any], level: int = 0) -> None:
    """Appends the values of nested lists to `flat`; the lists must have the shape."""
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {shorten(value)} found at incorrect level: {level + 1} in the JSON "
                f"DOM. Expected at level: {len(shape)}"
            )
        flat.append(scalar(value, dtype))
        return
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: "
            f"{shape[level]}"
        )
    if level == len(shape) - 1 and (elements := scalars(value, dtype)) is not None:
        flat += elements
        return
    for item in value:
        _fill(item, shape, dtype, flat, level + 1)


def _array(flat: list[Any], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if len(shape) > _MAX_RANK:
        raise invalid(f"JSON Value is nested {len(shape)} deep: more than {_MAX_RANK}")
    if dtype != tf.string:
        return np.array(flat, dtype.as_numpy_dtype).reshape(shape)
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape)


def _brackets(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
