"""Converts the protocol's messages to arrays and JSON values, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import json_format

from keras_transformers.dependencies.untyped import Json, Message
from keras_transformers.serving.protocol.kserve import tensors
from keras_transformers.serving.protocol.kserve.service import messages

_TYPED = {  # type -> the field of its elements; FP16 has none
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "BOOL": "bool_contents",
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def read_tensor(tensor: Message, raw: Sequence[bytes], index: int) -> np.ndarray:
    """Returns the value of an input or output.

    Args:
        tensor: the input or output.
        raw: the message's binary tensors; empty if it has none.
        index: the tensor's place among them.

    Raises:
        ValueError: the elements do not fit type and shape.
    """
    if index < len(raw):
        if tensor.HasField("contents"):
            raise ValueError("the message has raw contents: leave contents out")
        return tensors.from_binary(raw[index], tensor.datatype, tensor.shape)
    field = _TYPED.get(tensor.datatype)
    if field is None:
        return tensors.from_binary(b"", tensor.datatype, tensor.shape)  # raises if it is unknown
    return tensors.from_values(getattr(tensor.contents, field), tensor.datatype, tensor.shape)


def add_tensor(
    tensors_of: Any, name: str, array: np.ndarray, raw: Any, *, typed: bool = False
) -> None:
    """Adds an input or output to a message.

    Args:
        tensors_of: the message's inputs or outputs.
        name: the tensor's name.
        array: its value.
        raw: the message's binary tensors.
        typed: whether its elements go to a field of their type instead.
    """
    datatype = tensors.datatype(array.dtype)
    tensor = tensors_of.add(name=name, datatype=datatype, shape=array.shape)
    if typed:
        getattr(tensor.contents, _TYPED[datatype]).extend(array.reshape(-1).tolist())
    else:
        raw.append(tensors.to_binary(array))


def has_typed_form(array: np.ndarray) -> bool:
    """Returns whether elements of an array's type have a field."""
    return tensors.datatype(array.dtype) in _TYPED


def read_parameters(parameters: Mapping[str, Message]) -> dict[str, bool | int | float | str]:
    """Returns parameters by name."""
    return {
        name: getattr(parameter, parameter.WhichOneof("parameter_choice") or "string_param")
        for name, parameter in parameters.items()
    }


def metadata_message(document: Mapping[str, Json]) -> Message:
    """Returns a model's metadata as a message."""
    response = messages().ModelMetadataResponse()
    plain = {name: value for name, value in document.items() if name != "parameters"}
    json_format.ParseDict(plain, response)
    for name, text in document["parameters"].items():
        response.parameters[name].string_param = text
    return response


def read_metadata_message(response: Message) -> dict[str, Any]:
    """Returns a model's metadata as JSON values."""
    return {
        "inputs": [_described(tensor) for tensor in response.inputs],
        "outputs": [_described(tensor) for tensor in response.outputs],
        "versions": list(response.versions),
        "parameters": read_parameters(response.parameters),
    }


def _described(tensor: Message) -> dict[str, Json]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
