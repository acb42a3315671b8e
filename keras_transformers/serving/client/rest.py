"""Defines the client's REST transport, which needs no TensorFlow."""

import base64
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np

from keras_transformers.dependencies.untyped import Json
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.serving.client.tls import ClientTls, connection_failure
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    request_error,
)
from keras_transformers.serving.protocol.errors import Code, RequestError, code_of_http_status
from keras_transformers.serving.protocol.signatures import ModelSpec

_DTYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_INT8": "int8",
    "DT_INT16": "int16",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
    "DT_UINT8": "uint8",
    "DT_UINT16": "uint16",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
    "DT_BOOL": "bool",
    "DT_STRING": "object",
}


class RestTransport:
    """Calls TF Serving's REST API; `transport.Transport` describes the methods.

    Args:
        url: the server's URL.
        tls: the files for TLS, for an https:// URL.
    """

    def __init__(self, url: str, tls: ClientTls) -> None:
        self._http = httpx.Client(base_url=url, verify=tls.context())

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        columns = {name: to_json(array) for name, array in inputs.items()}
        answer = self._post("predict", call, "inputs", columns)["outputs"]
        if len(outputs) == 1:  # the server leaves out the name of a single output
            answer = {next(iter(outputs)): answer}
        return {
            name: from_json(value, outputs[name].dtype if name in outputs else None)
            for name, value in answer.items()
        }

    def classify(  # noqa: D102
        self, call: Call, examples: Sequence[Features]
    ) -> list[list[tuple[str, float]]]:
        answer = self._post("classify", call, "examples", _examples(examples))
        return [[(label, score) for label, score in row] for row in answer["results"]]

    def regress(self, call: Call, examples: Sequence[Features]) -> list[float]:  # noqa: D102
        return self._post("regress", call, "examples", _examples(examples))["results"]

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        answer = self._send("GET", _path(model), None, timeout_s)
        return [
            VersionStatus(
                int(entry["version"]), entry["state"], entry["status"].get("error_message", "")
            )
            for entry in answer["model_version_status"]
        ]

    def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        answer = self._send("GET", f"{_path(model)}/metadata", None, timeout_s)
        definitions = answer["metadata"]["signature_def"]["signature_def"]
        return {
            name: SignatureInfo(
                signature["method_name"],
                {key: _spec(info) for key, info in signature.get("inputs", {}).items()},
                {key: _spec(info) for key, info in signature.get("outputs", {}).items()},
            )
            for name, signature in definitions.items()
        }

    def close(self) -> None:  # noqa: D102
        self._http.close()

    def _post(self, method: str, call: Call, key: str, value: Json) -> Json:
        body = json.dumps({"signature_name": call.signature_name, key: value})
        return self._send("POST", f"{_path(call.model)}:{method}", body, call.timeout_s)

    def _send(self, method: str, path: str, content: str | None, timeout_s: float) -> Json:
        try:
            response = self._http.request(method, path, content=content, timeout=timeout_s)
        except httpx.TimeoutException as error:
            raise request_error(Code.DEADLINE_EXCEEDED, "", timeout_s) from error
        except httpx.TransportError as error:
            message = connection_failure(f"{self._http.base_url}", f"{error}")
            raise RequestError(Code.UNAVAILABLE, message) from error
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.status_code == 200 and isinstance(answer, dict):
            return answer
        text = answer.get("error") if isinstance(answer, dict) else response.text[:500]
        raise request_error(
            code_of_http_status(response.status_code),
            f"{text or response.reason_phrase}",
            timeout_s,
        )


def to_json(value: np.ndarray | list[Any] | bytes) -> Json:
    r"""Returns an array, or an element of one, as JSON; bytes that are not UTF-8 become base64.

    >>> to_json(np.array([b"text", b"\xff"], object))
    ['text', {'b64': '/w=='}]
    """
    if isinstance(value, np.ndarray):
        return to_json(value.tolist()) if value.dtype == object else value.tolist()
    if isinstance(value, list):
        return [to_json(item) for item in value]
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


def from_json(value: Json, dtype: "np.dtype | None") -> np.ndarray:
    """Returns nested lists as an array, with strings as bytes."""
    if dtype is not None and dtype != np.dtype(object):
        return np.asarray(value, dtype)
    array = np.asarray(_to_bytes(value), None if dtype is None else object)
    return array.astype(object) if array.dtype.kind in "SU" else array


def _to_bytes(value: Json) -> Any:
    if isinstance(value, list):
        return [_to_bytes(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode("utf-8") if isinstance(value, str) else value


def _path(model: ModelSpec) -> str:
    path = f"/v1/models/{urllib.parse.quote(model.name, safe='')}"
    if model.version is not None:
        return f"{path}/versions/{model.version}"
    return f"{path}/labels/{urllib.parse.quote(model.label, safe='')}" if model.label else path


def _examples(examples: Sequence[Features]) -> list[dict[str, Any]]:
    def plain(place: str, value: Any) -> Json:
        if isinstance(value, str | bytes):
            return to_json(as_utf8(place, value))
        return [plain(place, x) for x in value] if isinstance(value, list | tuple) else value

    return [
        {name: plain(f"example {row}: {name}", value) for name, value in example.items()}
        for row, example in enumerate(examples)
    ]


def _spec(info: Mapping[str, Any]) -> TensorSpec:
    dtype = np.dtype(_DTYPES[info["dtype"]]) if info["dtype"] in _DTYPES else None
    shape = info.get("tensor_shape", {})
    if shape.get("unknown_rank"):
        return TensorSpec(dtype, None)
    sizes = [int(dimension["size"]) for dimension in shape.get("dim", [])]
    return TensorSpec(dtype, tuple(None if size < 0 else size for size in sizes))
