"""Defines what all APIs share: how bodies are read, and how refusals are said in each API's shape.

A request type is a pydantic model. It is the validation, the text of its errors and the page at
`/docs` at once. FastAPI ties it to its route; pydantic was chosen over msgspec because its errors
have a place and a reason for each field at fault, not one sentence for the first.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from keras_transformers.dependencies.untyped import Json
from keras_transformers.files.surrogates import half_of_a_pair
from keras_transformers.serving.gateway.backend import Models
from keras_transformers.serving.gateway.refusals import RefusalError, refusal
from keras_transformers.serving.protocol.errors import HTTP_STATUS, Code, RequestError
from keras_transformers.serving.server.guard import retry_headers
from keras_transformers.serving.server.logs import Seldom

# (refusal) -> the JSON of an API's error
ErrorShape = Callable[[RefusalError], Mapping[str, Json]]
_LONGEST_MESSAGE = 1000  # characters
_MOST_FIELDS = 1000  # of an object in a request
_T = TypeVar("_T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SUBJECT = re.compile(r"^(Input|String|List|Dictionary|Value) should")
_OWN = "Value error, "  # before the words of our own checks
_WORDS = {  # type of pydantic's error -> what is wrong with the field
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "model_attributes_type": "must be an object",
}
_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


# The type of a list in a request. It stops at its first item at fault: a million of them would
# become a million errors.
ListOf = Annotated[list[_T], Field(fail_fast=True)]


class Room:
    """Limits the requests in progress, once their bodies have arrived.

    Args:
        max_requests: how many there may be.
        max_bytes: how large their bodies may be together.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._num_requests, self._num_bytes = 0, 0

    @contextlib.contextmanager
    def place(self, size: int) -> Iterator[None]:
        """Admits a request with a body of this size; one without a body always.

        Raises:
            RefusalError: there are too many, or their bodies are too large.
        """
        if not size:
            yield
            return
        if self._num_requests >= self._max_requests:
            raise _busy(f"{self._num_requests} requests are in progress")
        if self._num_bytes + size > self._max_bytes:
            raise _busy(f"the requests in progress have {self._num_bytes} bytes")
        self._num_requests += 1
        self._num_bytes += size
        try:
            yield
        finally:
            self._num_requests -= 1
            self._num_bytes -= size


def _busy(reason: str) -> RefusalError:
    return refusal(f"{reason}: try again later", code=Code.RESOURCE_EXHAUSTED)


class Body(BaseModel):
    """A request: fields that it lacks are refused by name, and so are values of other types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def _models(request: Request) -> Models:
    return request.app.state.models


# The type of a route's argument that gets the models.
Asked = Annotated[Models, Depends(_models)]


def router(
    error_shape: ErrorShape,
    *,
    status: Callable[[RefusalError], int] = lambda refused: refused.status,
    request_class: "type[CheckedRequest] | None" = None,
    **options: Any,
) -> APIRouter:
    """Returns a router whose routes answer errors in their API's own shape.

    Args:
        error_shape: makes the JSON of an error.
        status: the HTTP status of an error, where the API has its own.
        request_class: how bodies are read; `CheckedRequest` by default.
        **options: those of `APIRouter`, such as `tags`, which names the API in the description.
    """
    checked_request = request_class or CheckedRequest

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answer = super().get_route_handler()

            async def respond(request: Request) -> Response:
                checked = checked_request(request.scope, request.receive)
                held = contextlib.ExitStack()
                try:
                    size = await _read(checked)
                    held.enter_context(request.app.state.room.place(size))
                    checked.parse()
                    response = await _while_connected(checked, answer)
                    if isinstance(response, _EventStream):
                        response.held = held.pop_all()
                    return response
                except Exception as error:
                    refused = as_refusal(error, f"{request.method} {request.url.path[:200]}")
                    return Route.refuse(refused)
                finally:
                    held.close()

            return respond

        @staticmethod
        def refuse(refused: RefusalError) -> Response:
            """Returns a refusal in the API's shape."""
            number = status(refused)
            return _json(error_shape(refused), number, retry_headers(number, refused))

    return APIRouter(route_class=Route, strict_content_type=False, **options)


async def _read(request: "CheckedRequest") -> int:
    """Reads a request's body within the time of a request, and returns its size in bytes."""
    try:
        async with asyncio.timeout(request.app.state.timeout_s):
            return await request.read()
    except TimeoutError:
        raise refusal("the body did not arrive in time", code=Code.DEADLINE_EXCEEDED) from None


def described_errors(error: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Returns the `responses` of a router, for the page at `/docs`: the shape of its errors.

    Without it, FastAPI describes its own, which are never sent.
    """
    return {"default": {"model": error, "description": "The request is refused, or failed."}}


def answered(model: BaseModel) -> Response:
    """Returns a response with the fields of a model that were set, also those that are None.

    A route that returns it names the model's type as its `response_model`, for the page at `/docs`.
    """
    return Response(model.model_dump_json(exclude_unset=True), media_type="application/json")


def _json(content: Json, status: int, headers: Mapping[str, str] | None) -> Response:
    # In ASCII, because a message may quote half of a surrogate pair, which has no UTF-8.
    return Response(json.dumps(content), status, headers, media_type="application/json")


def as_refusal(error: Exception, place: str) -> RefusalError:
    """Returns any error as a refusal; logs those that are our own fault.

    Args:
        error: what a route raised.
        place: the method and the path, for the log.
    """
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, RequestError):
        number = HTTP_STATUS[error.code]
        return RefusalError(
            error.code, error.message, None, number, retry_after_s=error.retry_after_s
        )
    if isinstance(error, RequestValidationError):
        return _of_fields(error)
    if isinstance(error, ClientDisconnect):
        return refusal("the client has left", code=Code.CANCELLED)
    if isinstance(error, HTTPException):
        return refusal(str(error.detail), status=error.status_code)
    _logger.error("%s failed", place, exc_info=error)
    return refusal("internal error; see the server's log", code=Code.INTERNAL)


def _of_fields(failure: RequestValidationError) -> RefusalError:
    """Returns the refusal of a body; the first field at fault is the refusal's."""
    errors = failure.errors()
    places = [_place(error, failure.body) for error in errors]
    texts = [
        f"{place or 'body'}: {_in_words(error)}"
        for place, error in zip(places, errors, strict=True)
    ]
    return refusal("; ".join(texts)[:_LONGEST_MESSAGE], field=places[0] or None)


def _place(error: Mapping[str, Any], body: Json) -> str:
    """Returns the field at fault, such as "messages.0.role", without pydantic's names of types."""
    place = error["loc"][1:]
    lacking = place[-1:] if error["type"] == "missing" else ()
    parts, value = [], body
    for part in place[: len(place) - len(lacking)]:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
        else:  # one of the types that a field may have
            continue
        parts.append(str(part))
    parts += map(str, lacking)
    return ".".join(parts)


def _in_words(error: Mapping[str, Any]) -> str:
    """Returns what is wrong with a field, without pydantic's terms."""
    if error["type"] in _WORDS:
        return _WORDS[error["type"]]
    return _SUBJECT.sub("must", error["msg"].removeprefix(_OWN)).replace(" after validation", "")


class CheckedRequest(Request):
    """A request whose body has a limit and is JSON, which FastAPI finds parsed."""

    async def read(self) -> int:
        """Reads the body and returns its size in bytes.

        Raises:
            RefusalError: it is too large, or compressed.
        """
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise refusal(
                f"Content-Encoding: {encoding[:60]} is not supported: send none", status=415
            )
        limit, body = self.app.state.max_body_bytes, bytearray()
        declared = self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        async for chunk in self.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
        self._body = bytes(body)
        return len(body)

    def parse(self) -> None:
        """Parses the body, if there is one.

        Raises:
            RefusalError: it is no JSON.
        """
        if not self._body:
            return
        text = self.json_part(self._body)
        try:
            self._json = json.loads(text, object_pairs_hook=_object)
            if _SURROGATE.search(text):
                _check_texts(self._json)
        except RecursionError:
            raise refusal("the body is not JSON that can be read: nested too deeply") from None
        except ValueError as error:  # includes UnicodeDecodeError
            raise refusal(f"the body is not JSON: {error}") from None

    def json_part(self, body: bytes) -> bytes:
        """Returns the JSON in a body, which is all of it.

        Raises:
            RefusalError: the body is something else.
        """
        kind = self.headers.get("content-type", "application/json")
        if "json" not in kind.lower():
            raise refusal(
                f"Content-Type: {kind[:60]} is not JSON: send application/json", status=415
            )
        return body


def _object(fields: list[tuple[str, Json]]) -> dict[str, Json]:
    """Returns an object of a body; each of a million unknown fields would become an error."""
    if len(fields) > _MOST_FIELDS:
        raise refusal(
            f"{fields[0][0][:100]} and more: an object has {len(fields)} fields, but the limit is "
            f"{_MOST_FIELDS}"
        )
    return dict(fields)


def _check_texts(document: Json) -> None:
    """Refuses a body that has half of a surrogate pair, by its place; it cannot be sent on."""
    left: list[tuple[tuple[str, ...], Json]] = [((), document)]
    while left:
        place, value = left.pop()
        if isinstance(value, str) and (reason := half_of_a_pair(value)):
            field = ".".join(place)
            raise refusal(f"{field}: {value!r:.60} has {reason}", field=field)
        if isinstance(value, dict):
            left.extend((place, name) for name in value)
        if isinstance(value, dict | list):
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            left.extend(((*place, str(part)), inner) for part, inner in parts)


def _too_large(limit: int) -> RefusalError:
    return refusal(
        f"the body is larger than {limit} bytes", code=Code.RESOURCE_EXHAUSTED, status=413
    )


async def _while_connected(
    request: Request, answer: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Answers a request whose body has arrived, and cancels the work if its client leaves."""
    working = asyncio.ensure_future(answer(request))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def event_stream(
    items: AsyncGenerator[BaseModel, None], error_shape: ErrorShape, *, end: str | None = None
) -> StreamingResponse:
    """Returns a response of server-sent events, once the first of them is there.

    An error before that is raised, so that it gets its own status; a later one is the last event.
    A client that leaves closes the items.

    Args:
        items: the data of each event; the fields that were set, also those that are None.
        error_shape: makes the data of an error.
        end: the data of an event after the last one.
    """
    first = await anext(items)

    async def events() -> AsyncIterator[bytes]:
        try:
            yield _event(first.model_dump_json(exclude_unset=True))
            async for item in items:
                yield _event(item.model_dump_json(exclude_unset=True))
            if end is not None:
                yield _event(end)
        except Exception as error:
            yield _event(json.dumps(error_shape(as_refusal(error, "a stream"))))

    return _EventStream(events(), items)


class _EventStream(StreamingResponse):
    """A response of server-sent events, which closes what they come from when it ends.

    Attributes:
        held: what holds the request's place, also closed then.
    """

    def __init__(
        self, events: AsyncIterator[bytes], source: AsyncGenerator[BaseModel, None]
    ) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        self._source = source
        self.held = contextlib.ExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.held:
            async with contextlib.aclosing(self._source):
                await super().__call__(scope, receive, send)


def _event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()
