"""Implements TF Serving's REST API as an ASGI application.

https://www.tensorflow.org/tfx/serving/api_rest documents it. No part of a request's path reaches
the file system: the model's name is only a dictionary key.
"""

import asyncio
import contextlib
import contextvars
import functools
import json
import logging
import re
import threading
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar

from google.protobuf import json_format
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from keras_transformers.dependencies.untyped import Json, Message
from keras_transformers.serving.gateway.openai import models as openai_models
from keras_transformers.serving.protocol import json_tensors, messages, requests
from keras_transformers.serving.protocol.errors import HTTP_STATUS, Code, RequestError, invalid
from keras_transformers.serving.protocol.events import MEDIA_TYPE
from keras_transformers.serving.protocol.floats import shorten_floats
from keras_transformers.serving.protocol.json_examples import read_examples
from keras_transformers.serving.protocol.json_values import parse, signature_name
from keras_transformers.serving.protocol.requests import CLASSIFY, REGRESS
from keras_transformers.serving.protocol.signatures import (
    DEFAULT_SIGNATURE,
    Arrays,
    ModelSpec,
    SignatureInfo,
)
from keras_transformers.serving.server import metrics
from keras_transformers.serving.server.engine import Call, Engine, Lease
from keras_transformers.serving.server.events import Events
from keras_transformers.serving.server.guard import retry_headers
from keras_transformers.serving.server.hosts import split_target
from keras_transformers.serving.server.logs import Seldom
from keras_transformers.serving.server.statuses import status_response

# kPredictionApiRegex and kModelStatusApiRegex in TF Serving's http_rest_api_util.cc.
_MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_INFERENCE = re.compile(_MODEL + r":(classify|regress|predict)", re.IGNORECASE | re.ASCII)
_STATUS = re.compile(_MODEL + r"(/metadata)?", re.IGNORECASE | re.ASCII)
_NO_MODEL = re.compile(r"/v1/models", re.IGNORECASE)

_LARGE = 2**20  # bytes of a body
_large_bodies = threading.BoundedSemaphore(2)  # bodies parsed at the same time

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


class _HttpError(RequestError):
    """Raised for an HTTP status without a corresponding code.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.status = status


def application(
    engine: Engine, executor: Executor, others: ASGIApp | None = None
) -> Callable[..., Awaitable[None]]:
    """Returns the ASGI application, which answers every request.

    Args:
        engine: answers the requests.
        executor: runs them; the event loop only reads and writes.
        others: another ASGI application, for paths outside the API.
    """

    async def respond(request: Request) -> Response:
        _, path = split_target(request.scope)
        try:
            return await _route(engine, executor, request, path)
        except RequestError as error:
            status = error.status if isinstance(error, _HttpError) else HTTP_STATUS[error.code]
            return _json({"error": error.message}, status, retry_headers(status, error))
        except Exception:
            _logger.exception("%s %s failed", request.method, path)
            return _json({"error": "internal error; see the server's log"}, 500)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        _, path = split_target(scope)
        if others and not is_of_this_api(path):
            await others(scope, receive, send)
            return
        response = await respond(Request(scope, receive))
        await response(scope, receive, send)

    return answer


async def _route(engine: Engine, executor: Executor, request: Request, path: str) -> Response:
    if request.method == "POST" and (match := _INFERENCE.fullmatch(path)):
        return await _infer(engine, executor, request, match)
    if request.method == "GET" and (match := _STATUS.fullmatch(path)):
        return _describe(engine, _spec(match), metadata=bool(match[4]))
    if request.method == "GET" and _NO_MODEL.fullmatch(path):
        raise invalid("Missing model name in request.")
    if request.method in ("GET", "HEAD") and path == metrics.PATH:
        return Response(engine.metrics.page(), media_type=metrics.CONTENT_TYPE)
    if not path.lower().startswith("/v1/"):
        raise RequestError(Code.NOT_FOUND, f"Not found: {path[:200]}")
    raise invalid(f"Malformed request: {request.method} {path[:200]}")


def _spec(match: "re.Match[str]") -> ModelSpec:
    version = None
    if match[2]:
        digits = match[2].lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= 2**63:  # int() rejects thousands of digits
            raise invalid(f"Failed to convert version: {match[2][:40]} to numeric.")
        version = int(digits)
    label = urllib.parse.unquote(match[3]) if match[3] else None
    return ModelSpec(urllib.parse.unquote(match[1]), version, label)


async def _infer(
    engine: Engine, executor: Executor, request: Request, match: "re.Match[str]"
) -> Response:
    method = match[4].lower()
    spec, limit = _spec(match), engine.limits.max_body_bytes
    with contextlib.ExitStack() as held:
        call = held.enter_context(engine.call("REST", method.capitalize()))
        zipped = _is_zipped(request)
        try:
            async with asyncio.timeout(engine.limits.timeout_s):
                body = await _body(request, limit)
        except TimeoutError:
            raise RequestError(Code.DEADLINE_EXCEEDED, "the body did not arrive in time") from None

        unzipped = _unzipped_size(body, limit) if zipped else 0

        def content() -> bytes:
            return _unzipped(body, unzipped, limit) if zipped else body

        def answer() -> Response:
            with engine.lease(call, spec) as lease:
                return _json(_ANSWERS[method](lease, content()))

        held.enter_context(engine.slot(len(body) + unzipped))
        context = contextvars.copy_context()  # with the request's id and trace

        def in_executor(function: Callable[[], _T]) -> "asyncio.Future[_T]":
            return asyncio.get_running_loop().run_in_executor(executor, context.run, function)

        watching = asyncio.ensure_future(_abandon_if_client_leaves(request, call))
        try:
            if method == "predict" and MEDIA_TYPE in request.headers.get("accept", ""):
                lease = held.enter_context(engine.lease(call, spec))
                parts = lease.stream(*await in_executor(lambda: _checked(lease, content())))
                if parts is not None:
                    first = await anext(parts)
                    watch = functools.partial(_abandon_if_client_leaves, request, call)
                    return Events(first, parts, held.pop_all(), watch)
            return await in_executor(answer)
        except BaseException:
            call.abandon()  # in case this task was cancelled, because the server stops
            raise
        finally:
            watching.cancel()


async def _abandon_if_client_leaves(request: Request, call: Call) -> None:
    """Watches the connection of a request whose body has arrived."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    call.abandon()


def _is_zipped(request: Request) -> bool:
    encoding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise _HttpError(
            415,
            Code.INVALID_ARGUMENT,
            f"Content-Encoding: {encoding[:40]} is not supported; use gzip or none",
        )
    return encoding in ("gzip", "x-gzip")


async def _body(request: Request, limit: int) -> bytes:
    """Returns the request's body, reading no further than the limit."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
    except ClientDisconnect:
        raise RequestError(Code.CANCELLED, "the client has disconnected") from None
    return bytes(body)


def _unzipped_size(body: bytes, limit: int) -> int:
    """Returns the uncompressed size in the last four bytes of a gzip stream, up to the limit."""
    return min(int.from_bytes(body[-4:], "little"), limit)


def _unzipped(body: bytes, size: int, limit: int) -> bytes:
    """Decompresses a gzip body, with the same limit as for other bodies."""
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        content = unzip.decompress(body, size + 1)
    except zlib.error as error:
        raise invalid(f"the body is not gzip, as Content-Encoding says: {error}") from None
    if len(content) > limit:
        raise _too_large(limit)
    if not unzip.eof or unzip.unused_data:
        raise invalid("the body is not exactly one gzip stream, as Content-Encoding says")
    return content


def _too_large(limit: int) -> RequestError:
    return _HttpError(413, Code.RESOURCE_EXHAUSTED, f"the body is larger than {limit} bytes")


@contextlib.contextmanager
def _room_to_parse(body: bytes) -> Iterator[None]:
    """Waits until a large body may be parsed, which takes up to 25 times its size in memory.

    The parsed JSON must be freed when the block ends, so the block may keep only tensors.
    """
    with _large_bodies if len(body) > _LARGE else contextlib.nullcontext():
        yield


def _predict(lease: Lease, body: bytes) -> dict[str, Any]:
    with _room_to_parse(body):
        signature, inputs, format = _prediction(lease, body)
    return json_tensors.write_outputs(requests.predict(signature, inputs, lease.run), format)


def _prediction(lease: Lease, body: bytes) -> tuple[SignatureInfo, Arrays, json_tensors.Format]:
    document = parse(body)
    name = signature_name(document) or DEFAULT_SIGNATURE
    signature = lease.model.signatures.get(name)
    if signature is None:
        raise invalid(f'Serving signature name: "{name[:200]}" not found in signature def')
    return signature, *json_tensors.read_inputs(document, signature)


def _checked(lease: Lease, body: bytes) -> tuple[SignatureInfo, Arrays]:
    """Returns the signature that a Predict request names, and its inputs."""
    with _room_to_parse(body):
        signature, inputs, _ = _prediction(lease, body)
    requests.check_inputs(signature, inputs)
    return signature, inputs


def _classify(lease: Lease, body: bytes) -> dict[str, Any]:
    with _room_to_parse(body):
        signature, examples = _examples(lease, body, CLASSIFY)
    rows = requests.classify(signature, examples, lease.run)
    scores = iter(shorten_floats([score for row in rows for _, score in row]))
    return {"results": [[[label, next(scores)] for label, _ in row] for row in rows]}


def _regress(lease: Lease, body: bytes) -> dict[str, Any]:
    with _room_to_parse(body):
        signature, examples = _examples(lease, body, REGRESS)
    values = requests.regress(signature, examples, lease.run)
    return {"results": shorten_floats(values)}


def _examples(lease: Lease, body: bytes, method: str) -> tuple[SignatureInfo, Any]:
    document = parse(body)
    signature = requests.example_signature(lease.model, signature_name(document), method)
    return signature, read_examples(document)


_ANSWERS: dict[str, Callable[[Lease, bytes], dict[str, Any]]] = {
    "predict": _predict,
    "classify": _classify,
    "regress": _regress,
}


def _describe(engine: Engine, spec: ModelSpec, *, metadata: bool) -> Response:
    """Answers a status or metadata request, without limits, so that probes always get through."""
    if not metadata:
        status = _message(status_response(engine.statuses(spec)))
        is_whole = spec == ModelSpec(spec.name)  # its path is one of OpenAI's API, too
        return _json(status | (openai_models.card(spec.name) if is_whole else {}))
    with engine.models[spec.name].lease(spec.version, spec.label) as (version, saved_model):
        signatures = _message(messages.signature_map(saved_model))
        model = {"name": spec.name, "signature_name": "", "version": str(version.number)}
        return _json({"model_spec": model, "metadata": {"signature_def": signatures}})


def _message(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def refusal(scope: Scope, error: RequestError) -> Response:
    """Returns a refusal in TF Serving's shape."""
    status = HTTP_STATUS[error.code]
    return _json({"error": error.message}, status, retry_headers(status, error))


def is_of_this_api(path: str) -> bool:
    """Returns whether a path is one of TF Serving's API or its metrics."""
    return path.lower().startswith("/v1/models/") or path == metrics.PATH


def _json(content: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(", ", ": "))
    data = text.encode("utf-8", "replace")
    return Response(data, status_code=status, headers=headers, media_type="application/json")
