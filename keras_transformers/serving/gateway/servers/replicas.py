"""Asks one of several servers with the same models, and another one if it does not answer."""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from keras_transformers.serving.client.transport import Call, SignatureInfo, VersionStatus
from keras_transformers.serving.gateway.servers.transport import AsyncTransport, Outputs
from keras_transformers.serving.protocol import tracing
from keras_transformers.serving.protocol.errors import Code, RequestError, UnreachableError
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec
from keras_transformers.serving.server.logs import Seldom

_RETRIED = (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)  # the server did not accept the request
# The server knows no such key, or wants one.
_REFUSED = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)
_REST_S = 1.0  # how long a server that did not answer is asked last
_NAMES_KEPT_S = 1.0  # how long the names of models are kept
_KEPT_S = 60.0  # how long a model's signatures are kept
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


@dataclass(eq=False)
class _Server:
    """A server, its requests in progress, and when it may be asked again."""

    transport: AsyncTransport
    number: int
    num_requests: int = 0
    rests_until: float = 0.0

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self.num_requests += 1
        try:
            yield
        except RequestError as error:
            if error.code == Code.UNAVAILABLE:
                self.rests_until = time.monotonic() + (error.retry_after_s or _REST_S)
            # The addresses of servers, and their keys, are no matter of the gateway's clients.
            if isinstance(error, UnreachableError):
                _logger.warning("%s", error.message)
                raise RequestError(error.code, "the model's server does not answer") from error
            if error.code in _REFUSED:
                _logger.error("a server refuses the gateway: %s", error.message)
                text = "the model's server refuses the gateway; see its log"
                raise RequestError(Code.INTERNAL, text) from error
            raise
        finally:
            self.num_requests -= 1


class Replicas:
    """Servers with the same models.

    A request goes to the server with the fewest requests in progress. One that no server has
    accepted is tried on each of them once.

    Args:
        transports: one for each server, at least one.
    """

    # Until when the names of models are kept, and the names; None before the first answer.
    _names: tuple[float, list[str] | None] | None = None

    def __init__(self, transports: Sequence[AsyncTransport]) -> None:
        self._servers = [_Server(transport, number) for number, transport in enumerate(transports)]
        self._signatures: dict[ModelSpec, tuple[float, Mapping[str, SignatureInfo]]] = {}

    async def predict(self, call: Call, inputs: Arrays) -> Outputs:
        """See `Backend.predict`."""
        outputs = (await self.signatures(call.model, call.timeout_s))[call.signature_name].outputs
        with self._dropping_old_signatures(call.model):
            return await self._ask(
                lambda transport, left_s: transport.predict(
                    replace(call, timeout_s=left_s), inputs, outputs
                ),
                call.timeout_s,
            )

    async def stream(self, call: Call, inputs: Arrays) -> AsyncIterator[Outputs]:
        """See `Backend.stream`; another server is tried only before the first piece."""
        outputs = (await self.signatures(call.model, call.timeout_s))[call.signature_name].outputs
        deadline = time.monotonic() + call.timeout_s
        with self._dropping_old_signatures(call.model):
            for server, is_last in self._in_order():
                started, begun = False, time.monotonic()
                left = replace(call, timeout_s=max(0.001, deadline - time.monotonic()))
                try:
                    with server.busy():
                        pieces = server.transport.stream(left, inputs, outputs)
                        try:
                            async with contextlib.aclosing(pieces):  # type: ignore[type-var]
                                async for piece in pieces:
                                    started = True
                                    yield piece
                        finally:  # a span around it would be the current one of its caller too
                            now = time.monotonic()
                            tracing.record("backend request", begun, now, replica=server.number)
                    return
                except RequestError as error:
                    if started or is_last or error.code not in _RETRIED:
                        raise

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:
        """See `Backend.status`."""
        return await self._ask(lambda t, left_s: t.status(model, left_s), timeout_s)

    async def signatures(self, model: ModelSpec, timeout_s: float) -> Mapping[str, SignatureInfo]:
        """See `Backend.signatures`; they are kept for a minute, or until a request fails."""
        now = time.monotonic()
        kept_until, signatures = self._signatures.get(model, (0.0, {}))
        if kept_until <= now:
            signatures = await self._ask(lambda t, left_s: t.signatures(model, left_s), timeout_s)
            self._signatures[model] = now + _KEPT_S, signatures
        return signatures

    async def names(self, timeout_s: float) -> list[str] | None:
        """Returns the names of the servers' models; None if they do not tell them.

        They are kept for a second, because each request needs them, and as long as no server
        answers, so that requests for these models say that, not that there are no such models.
        """
        now = time.monotonic()
        if self._names is not None and now < self._names[0]:
            return self._names[1]
        try:
            names = await self._ask(lambda t, left_s: t.names(left_s), timeout_s)
        except RequestError:
            if self._names is None:
                raise
            names = self._names[1]
        self._names = now + _NAMES_KEPT_S, names
        return names

    async def close(self) -> None:
        """Closes the connections."""
        for server in self._servers:
            await server.transport.close()

    async def _ask(
        self, send: Callable[[AsyncTransport, float], Awaitable[_T]], timeout_s: float
    ) -> _T:
        """Calls `send` with a server and the seconds left, until a server accepts the request."""
        deadline = time.monotonic() + timeout_s
        for server, is_last in self._in_order():
            try:
                with (
                    server.busy(),
                    tracing.span("backend request", "client", replica=server.number),
                ):
                    return await send(server.transport, max(0.001, deadline - time.monotonic()))
            except RequestError as error:
                if is_last or error.code not in _RETRIED:
                    raise
        raise AssertionError("there is at least one server")

    def _in_order(self) -> Iterator[tuple[_Server, bool]]:
        """Yields the servers, those that rest last, and whether each is the last."""
        now = time.monotonic()
        servers = sorted(self._servers, key=lambda s: (s.rests_until > now, s.num_requests))
        for place, server in enumerate(servers, 1):
            yield server, place == len(servers)

    @contextlib.contextmanager
    def _dropping_old_signatures(self, model: ModelSpec) -> Iterator[None]:
        """Forgets a model's signatures if a request fails: a new version may have others."""
        try:
            yield
        except RequestError as error:
            if error.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.NOT_FOUND):
                self._signatures.pop(model, None)
            raise
