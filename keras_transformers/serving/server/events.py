"""Answers a request with server-sent events, as its text is written."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.protocol import json_tensors
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.protocol.events import MEDIA_TYPE
from keras_transformers.serving.server.logs import Seldom

Outputs = dict[str, Any]

_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


class Events(Response):
    """Sends the outputs of a request as they come.

    Args:
        first: the first outputs; an error before them is an ordinary answer.
        others: the others.
        request: what holds the request's place; ends with the response.
        watch: watches the connection, and ends the request if its client leaves.
    """

    def __init__(
        self,
        first: Outputs,
        others: AsyncGenerator[Outputs],
        request: contextlib.ExitStack,
        watch: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache"}, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._first = first
        self._others = others
        self._request = request
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, as an ASGI application."""

        async def event(content: Json) -> None:
            text = f"data: {json.dumps(content, ensure_ascii=False)}\n\n"
            body = text.encode("utf-8", "replace")
            await send({"type": "http.response.body", "body": body, "more_body": True})

        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        error = None
        try:
            async with self._held():
                await event(json_tensors.write_outputs(self._first, "column"))
                async for outputs in self._others:
                    await event(json_tensors.write_outputs(outputs, "column"))
        except RequestError as failure:
            error = failure.message
        except Exception:
            _logger.exception("a stream failed")
            error = "internal error; see the server's log"
        if error is not None:
            await event({"error": error})
        await send({"type": "http.response.body", "body": b""})

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncGenerator[None]:
        with self._request:
            async with contextlib.aclosing(self._others):
                watching = asyncio.ensure_future(self._watch())
                try:
                    yield
                finally:
                    watching.cancel()
