"""Connections that end: uvicorn alone waits for ever for a request that was begun and not sent."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class BoundedConnection(H11Protocol):
    """HTTP/1.1 whose connections are closed when no request comes over them in time.

    uvicorn's `timeout_keep_alive` counts from an answer to the next byte. Here it also counts from
    the connection to the end of its first request's head, from the first byte of a later one to the
    end of that head, and while what is left of a refused body comes in, however many bytes trickle
    in meanwhile. So nobody can take all connections by saying nothing (slow loris). What a request
    that is being answered may take is the application's to say.
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
        """Starts the clock where no request is being answered; further bytes do not set it back."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _forget(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
