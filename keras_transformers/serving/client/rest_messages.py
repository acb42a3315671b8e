"""Writes TF Serving's REST requests and reads its answers, for any transport of clients.

It needs no TensorFlow.
"""

import base64
import contextlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx
import numpy as np

from keras_transformers.dependencies.graph_errors import sentence
from keras_transformers.dependencies.untyped import Json
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.serving.client.tls import connection_failure
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    request_error,
)
from keras_transformers.serving.protocol.errors import Code, UnreachableError, code_of_http_status
from keras_transformers.serving.protocol.events import MEDIA_TYPE, data_of
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


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        method: "GET" or "POST".
        path: the path on the server.
        timeout_s: seconds until it fails.
        content: the body; None if there is none.
        headers: more than httpx's own.
    """

    method: Literal["GET", "POST"]
    path: str
    timeout_s: float
    content: str | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `httpx.Client.request` and `httpx.AsyncClient.request`."""
        return {
            "method": self.method,
            "url": self.path,
            "content": self.content,
            "timeout": self.timeout_s,
            "headers": dict(self.headers),
        }


def predict(call: Call, inputs: Mapping[str, np.ndarray]) -> Request:
    """Returns a Predict request, with the inputs in columns."""
    return _post("predict", call, "inputs", {n: to_json(array) for n, array in inputs.items()})


def stream(call: Call, inputs: Mapping[str, np.ndarray]) -> Request:
    """Returns a Predict request whose answer may come in parts, if the server can."""
    return replace(predict(call, inputs), headers={"Accept": f"{MEDIA_TYPE}, application/json"})


def with_examples(
    method: Literal["classify", "regress"], call: Call, examples: Sequence[Features]
) -> Request:
    """Returns a Classify or a Regress request."""
    return _post(method, call, "examples", _examples(examples))


def status(model: ModelSpec, timeout_s: float) -> Request:
    """Returns a request for the state of each version."""
    return Request("GET", path(model), timeout_s)


def metadata(model: ModelSpec, timeout_s: float) -> Request:
    """Returns a request for the signatures of a version."""
    return Request("GET", f"{path(model)}/metadata", timeout_s)


@contextlib.contextmanager
def request_errors(server: str, timeout_s: float) -> Iterator[None]:
    """Raises a RequestError where httpx gets no answer.

    Args:
        server: the server's URL.
        timeout_s: how long the request was allowed to take.
    """
    try:
        yield
    except httpx.TimeoutException as error:
        raise request_error(Code.DEADLINE_EXCEEDED, "", timeout_s) from error
    except httpx.TransportError as error:
        raise UnreachableError(Code.UNAVAILABLE, connection_failure(server, f"{error}")) from error


def read(response: httpx.Response, timeout_s: float) -> Json:
    """Returns the object in a server's answer.

    Raises:
        RequestError: the server refused the request or failed.
    """
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if response.status_code == 200 and isinstance(answer, dict):
        return answer
    text = answer.get("error") if isinstance(answer, dict) else response.text[:500]
    code = code_of_http_status(response.status_code)
    message = f"{text or response.reason_phrase}"
    raise request_error(code, message, timeout_s, response.headers)


def has_events(response: httpx.Response) -> bool:
    """Returns whether an answer comes in parts; otherwise it is a plain one."""
    return response.headers.get("content-type", "").startswith(MEDIA_TYPE)


def read_event(line: str, timeout_s: float) -> Json | None:
    """Returns the part of an answer in a line of its events; None if there is none.

    Raises:
        RequestError: the server failed.
    """
    data = data_of(line)
    if data is None:
        return None
    try:
        part = json.loads(data)
    except ValueError:
        part = {"error": f"an event that is not JSON: {data[:200]}"}
    if "error" in part:
        raise request_error(Code.UNKNOWN, f"{part['error']}", timeout_s)
    return part


def read_outputs(answer: Json, outputs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray]:
    """Returns the arrays in the answer to a Predict request.

    Args:
        answer: the answer.
        outputs: those of the signature.
    """
    values = answer["outputs"]
    if len(outputs) == 1:  # the server leaves out the name of a single output
        values = {next(iter(outputs)): values}
    return {
        name: from_json(value, outputs[name].dtype if name in outputs else None)
        for name, value in values.items()
    }


def read_status(answer: Json) -> list[VersionStatus]:
    """Returns the state of each version."""
    return [
        VersionStatus(
            int(entry["version"]),
            entry["state"],
            sentence(entry["status"].get("error_message", "")),
        )
        for entry in answer["model_version_status"]
    ]


def read_signatures(answer: Json) -> dict[str, SignatureInfo]:
    """Returns the signatures in a version's metadata."""
    definitions = answer["metadata"]["signature_def"]["signature_def"]
    return {
        name: SignatureInfo(
            signature["method_name"],
            {key: _spec(info) for key, info in signature.get("inputs", {}).items()},
            {key: _spec(info) for key, info in signature.get("outputs", {}).items()},
        )
        for name, signature in definitions.items()
    }


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


def path(model: ModelSpec) -> str:
    """Returns the path of a model, its version or its label."""
    of_model = f"/v1/models/{urllib.parse.quote(model.name, safe='')}"
    if model.version is not None:
        return f"{of_model}/versions/{model.version}"
    if model.label:
        return f"{of_model}/labels/{urllib.parse.quote(model.label, safe='')}"
    return of_model


def _post(method: str, call: Call, key: str, value: Json) -> Request:
    body = json.dumps({"signature_name": call.signature_name, key: value})
    return Request("POST", f"{path(call.model)}:{method}", call.timeout_s, body)


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
