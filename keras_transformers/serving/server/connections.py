"""Connections that time out; uvicorn alone would wait forever for the rest of a request."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class BoundedConnection(H11Protocol):
    """An HTTP/1.1 connection that closes unless a request arrives in time.

    uvicorn's `timeout_keep_alive` covers the time from an answer to the next byte. Here it also
    covers the time from connecting to the end of the first request's head, from the first byte of a
    later request to the end of its head, and the rest of a refused body, even if bytes trickle in.
    So silent clients cannot hold all connections (slow loris). The application limits the time that
    an answer takes.
    """

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: D102
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Starts the clock unless a request is being answered; more bytes do not reset it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _forget(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
