"""Stands before an HTTP application: health, request ids, API keys, traces, the log of requests."""

import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_transformers.serving.protocol import request_ids, tracing
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.server.hosts import split_target
from keras_transformers.serving.server.keys import ApiKeys

LIVE, READY = "/healthz", "/readyz"
# The probes of platforms, which show no key: of KServe, Text Embeddings Inference and SageMaker.
_WITHOUT_KEYS = ("/v2/health/live", "/v2/health/ready", "/health", "/ping")
_BUSY_S = 1.0  # after which a request that was refused because of others may be sent again

_logger = logging.getLogger(__name__)
# (what a request asks for, why it is refused) -> the answer in the shape of its API
Refusal = Callable[[Scope, RequestError], Response]


class Health:
    """ASGI middleware that answers probes: /healthz and /readyz, without keys and Host checks.

    Args:
        app: gets all other requests.
        problem: returns why no requests can be answered now; empty if they can.
    """

    def __init__(self, app: ASGIApp, problem: Callable[[], Awaitable[str]]) -> None:
        self._app = app
        self._problem = problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            path = split_target(scope)[1].partition("?")[0]
            if path in (LIVE, READY):
                problem = await self._problem() if path == READY else ""
                answer = {"error": f"not ready: {problem}"} if problem else {"status": "ok"}
                await JSONResponse(answer, 503 if problem else 200)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Guard:
    """ASGI middleware that names each request, checks its key, traces it and logs it.

    Args:
        app: gets the requests that are admitted.
        refusal: says why one is not, in the shape of the API that it asks.
        keys: the keys that are admitted; None for all requests.
        log_requests: whether to log a line for each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        refusal: Refusal,
        *,
        keys: ApiKeys | None,
        log_requests: bool,
    ) -> None:
        self._app = app
        self._refusal = refusal
        self._keys = keys
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        path = split_target(scope)[1]
        number = request_ids.request_id(headers.get(request_ids.HEADER))
        token = request_ids.current.set(number)
        start, status, who = time.monotonic(), 0, ""

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (request_ids.HEADER.encode(), number.encode())
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        try:
            with (
                tracing.span(scope["method"], "server", parent=headers) as span,
                contextlib.ExitStack() as stack,
            ):
                answer = self._app
                try:
                    if self._keys is not None and path not in _WITHOUT_KEYS:
                        key = self._keys.check(headers)
                        who = key.name
                        stack.enter_context(self._keys.admit(key))
                except RequestError as error:
                    answer = self._refusal(scope, error)
                try:
                    await answer(scope, receive, send_named)
                finally:
                    if span is not None:
                        _describe(span, scope, status, number)
        finally:
            if self._log_requests:
                _logger.info(
                    "%s %s: %s, %.0f ms%s",
                    scope["method"],
                    "".join(c if c.isprintable() else "?" for c in path[:200]),
                    status or "no answer",
                    1e3 * (time.monotonic() - start),
                    f", key {who}" if who else "",
                )
            request_ids.current.reset(token)


def _describe(span: Any, scope: Scope, status: int, number: str) -> None:
    """Names a span after its route, which is known only now."""
    route = getattr(scope.get("route"), "path", "")
    if route:
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.request.method", scope["method"])
    span.set_attribute("http.response.status_code", status)
    span.set_attribute("request_id", number)


def retry_headers(status: int, error: RequestError | None = None) -> dict[str, str]:
    """Returns the headers of a refusal: when to try again, and how to show a key.

    Args:
        status: the HTTP status.
        error: the refusal, which may say when.
    """
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    if status not in (429, 503):
        return {}
    seconds = _BUSY_S if error is None or error.retry_after_s is None else error.retry_after_s
    return {"Retry-After": f"{max(1, math.ceil(seconds))}"}
