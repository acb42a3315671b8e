"""Defines the client's transport for KServe v2 over REST, which needs no TensorFlow."""

import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.client import rest_messages
from keras_transformers.serving.client.kserve.transport import (
    KServeTransport,
    parameters,
    version_of,
)
from keras_transformers.serving.client.rest import RestTransport
from keras_transformers.serving.client.transport import Call, TensorSpec
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.kserve import tensors
from keras_transformers.serving.protocol.signatures import ModelSpec

_JSON_LENGTH = "Inference-Header-Content-Length"  # bytes of the JSON before binary tensors


class KServeRestTransport(KServeTransport, RestTransport):
    """Calls KServe's REST API; `transport.Transport` describes the methods.

    Inputs go as JSON, which every server reads, but strings that are not UTF-8 go as Triton's
    binary tensors. Outputs are asked for as binary tensors and read in either form.
    """

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        written, parts = [], []
        for name, array in inputs.items():
            tensor: dict[str, Any] = {
                "name": name,
                "shape": list(array.shape),
                "datatype": tensors.datatype(array.dtype),
            }
            if _is_json(array):
                tensor["data"] = tensors.to_json(array)
            else:
                parts.append(tensors.to_binary(array))
                tensor["parameters"] = {"binary_data_size": len(parts[-1])}
            written.append(tensor)
        options = {**parameters(call.signature_name), "binary_data_output": True}
        text = json.dumps({"inputs": written, "parameters": options}).encode()
        headers = {"Content-Type": "application/json"}
        if parts:
            headers = {
                "Content-Type": "application/octet-stream",
                _JSON_LENGTH: str(len(text)),
            }
        path = f"{_path(call.model)}/infer"
        content = b"".join([text, *parts])
        response = self._respond(
            rest_messages.Request("POST", path, call.timeout_s, content, headers)
        )
        return _read_outputs(response, call.timeout_s)

    def _metadata(self, model: ModelSpec, timeout_s: float) -> Json:
        return self._send(rest_messages.Request("GET", _path(model), timeout_s))

    def _is_ready(self, model: ModelSpec, timeout_s: float) -> bool:
        try:
            self._send(rest_messages.Request("GET", f"{_path(model)}/ready", timeout_s))
        except RequestError as error:
            if error.code in (Code.DEADLINE_EXCEEDED, Code.NOT_FOUND):
                raise
            return False
        return True


def _path(model: ModelSpec) -> str:
    version = version_of(model)
    path = f"/v2/models/{urllib.parse.quote(model.name, safe='')}"
    return f"{path}/versions/{urllib.parse.quote(version, safe='')}" if version else path


def _is_json(array: np.ndarray) -> bool:
    """Returns whether JSON can say an array as it is."""
    if array.dtype.kind == "f":
        return bool(np.isfinite(array).all())
    try:
        for text in array.flat if array.dtype == object else ():
            text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _read_outputs(response: httpx.Response, timeout_s: float) -> dict[str, np.ndarray]:
    size = int(response.headers.get(_JSON_LENGTH, len(response.content)))
    if response.status_code != 200 or size == len(response.content):
        answer, start = rest_messages.read(response, timeout_s), size
    else:
        answer, start = json.loads(response.content[:size]), size
    arrays = {}
    for output in answer["outputs"]:
        shape, datatype = output["shape"], output["datatype"]
        length = output.get("parameters", {}).get("binary_data_size")
        if length is None:
            arrays[output["name"]] = tensors.from_answer(output["data"], datatype, shape)
        else:
            part = response.content[start : start + length]
            arrays[output["name"]] = tensors.from_binary(part, datatype, shape)
            start += length
    return arrays
