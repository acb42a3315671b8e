"""Limits how long clients can hold REST connections; uvicorn alone would wait forever."""

import asyncio
import json
import math
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_transformers.serving.protocol.errors import HTTP_STATUS, Code
from keras_transformers.serving.server.guard import retry_headers

# Only older unfinished requests are dropped: many clients send head and body separately.
_GRACE_S = 1.0
_LEAVING_S = 2.0  # how long a client may have closed its half and still wait for its answer
_SMALL = 64 * 1024  # bytes; smaller requests are not counted
_BUSY = HTTP_STATUS[Code.UNAVAILABLE]


class BoundedConnection(H11Protocol):
    """An HTTP/1.1 connection that waits for its client only for a limited time.

    uvicorn's `timeout_keep_alive` covers the time from an answer to the next byte. Here it also
    covers the time from connecting to the end of the first request's head, from the first byte of a
    later request to the end of its head, the rest of a rejected body, and the time in which a
    client does not read its answer, even if bytes trickle in. Silent clients therefore cannot hold
    connections (slow loris). The application limits the time for a body.

    uvicorn's `limit_concurrency` limits the number of connections. Beyond it, the connection that
    has waited longest for its client is closed to admit the new one. Connections are grouped by
    client address and by whether they have had an answer, and the largest group loses one. Neither
    a flood of new connections nor many idle ones can keep others out.

    One address may use a quarter of that number for requests that take more than a second to
    arrive; beyond it, the request of which the least has arrived is closed. Requests that arrive at
    once, such as probes, therefore always get an answer.

    The bodies of unfinished requests have a limit in bytes. Beyond it, the address with the most
    bytes loses its oldest unfinished request.

    Every rejection is JSON, {"error": ...}. A client that closes its half of the connection after a
    request still gets its answer within two seconds; a client that has left looks the same. In the
    middle of a stream, it has left.

    Args:
        max_unfinished_bytes: the limit for the bodies of all unfinished requests.
        arguments: uvicorn's arguments.
        options: uvicorn's options.
    """

    _giving_up: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _half_closed = False
    _leaving: asyncio.TimerHandle | None = None
    _ended = False  # being closed, so no longer counted
    _unfinished = False  # part of a request has arrived
    _received = 0  # the bytes of that part, unless they are discarded
    _since = 0.0  # when it started to wait for its client, or when part of a request arrived
    _group: tuple[str, bool] = ("", False)  # the client's address; whether it has had an answer

    def __init__(
        self, *arguments: Any, max_unfinished_bytes: float = math.inf, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._max_unfinished_bytes = max_unfinished_bytes
        self._limit = self.limit_concurrency
        self.limit_concurrency = None  # uvicorn would answer 503 to all requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # noqa: D102
        super().connection_made(transport)
        self._group = (self.client[0] if self.client else "", False)
        self._since = self.loop.time()
        self._watch()
        self._make_room()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        if not self._ended:
            super().data_received(data)
            self._watch()
            self._note_progress(len(data))

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool, too
        """Keeps the connection open for an early answer: the client may still read it.

        A client that has read part of an answer, which is a stream, has left.
        """
        self._half_closed = self._answers() and not self.cycle.response_started
        if self._half_closed:
            self._leaving = self.loop.call_later(_LEAVING_S, self.transport.close)
        return self._half_closed

    def on_response_complete(self) -> None:  # noqa: D102
        self._group, self._since = (self._group[0], True), self.loop.time()
        super().on_response_complete()  # may start with the next request
        self._note_progress()
        if self._half_closed and not self._answers():
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:  # noqa: D102
        self._give_up()

    def pause_writing(self) -> None:  # noqa: D102
        super().pause_writing()
        self._unread = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:  # noqa: D102
        super().resume_writing()
        self._stop_reading_clock()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._ended = True
        self._forget()
        self._stop_reading_clock()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers data that is not HTTP."""
        self._refuse(HTTP_STATUS[Code.INVALID_ARGUMENT], msg)

    def _answers(self) -> bool:
        """Returns whether a whole request has arrived and is being answered."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _watch(self) -> None:
        """Starts the clock unless a request is being answered; more bytes do not reset it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _forget(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _stop_reading_clock(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        """Closes the connection without waiting for a client that does not read its answer."""
        self._ended = True
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _note_progress(self, received: int = 0) -> None:
        """Records whether part of a request has arrived, and limits how many such parts wait."""
        before = self._unfinished
        in_head = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        in_body = self.conn.their_state is h11.SEND_BODY
        self._unfinished = not self._answers() and (in_head or in_body)
        if not self._unfinished:
            return
        if not before:
            self._since, self._received = self.loop.time(), 0
        refused = in_body and self.cycle.response_complete  # the rest is discarded
        self._received = 0 if refused else self._received + received
        self._limit_unfinished()
        if self._received > _SMALL:
            self._limit_bytes()

    def _all(self) -> list["BoundedConnection"]:
        """Returns the server's connections that are not being closed."""
        everyone: set[Any] = self.connections
        return [c for c in everyone if not c._ended]

    def _make_room(self) -> None:
        """Closes another connection if there are too many; this one if all others are answered."""
        everyone = self._all()
        if self._limit is None or len(everyone) <= self._limit:
            return
        waiting = [c for c in everyone if c is not self and not c._answers()]
        size = Counter(c._group for c in waiting)
        oldest = min(waiting, key=lambda c: (-size[c._group], c._since), default=self)
        if oldest is self or oldest._unfinished:
            oldest._refuse(_BUSY, f"the server has {self._limit} connections: try again later")
        else:  # an idle client expects no answer
            oldest._give_up()

    def _limit_unfinished(self) -> None:
        """Closes connections of the same client if too many of its requests are unfinished."""
        if self._limit is None:
            return
        most, started = self._limit // 4, self.loop.time() - _GRACE_S
        same = [c for c in self._all() if c._group[0] == self._group[0]]
        late = [c for c in same if c._unfinished and c._since < started]
        late.sort(key=lambda c: c._received)
        for connection in late[: max(0, len(late) - most)]:
            connection._refuse(
                _BUSY, f"{most} requests from this address are unfinished: send faster, or fewer"
            )

    def _limit_bytes(self) -> None:
        """Closes connections whose unfinished requests take too much memory."""
        large = [c for c in self._all() if c._unfinished and c._received > _SMALL]
        large.sort(key=lambda c: c._since)
        held: Counter[str] = Counter()
        for connection in large:
            held[connection._group[0]] += connection._received
        while held.total() > self._max_unfinished_bytes:
            most = max(held, key=lambda address: held[address])
            oldest = next(c for c in large if c._group[0] == most)
            large.remove(oldest)
            held[most] -= oldest._received
            oldest._refuse(
                _BUSY,
                f"unfinished requests have more than {self._max_unfinished_bytes} bytes: "
                "try again later",
            )

    def _refuse(self, status: int, error: str) -> None:
        """Closes the connection, with an answer if none was started."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the application does not need to answer any more
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": error}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", f"{len(body)}"),
                ("connection", "close"),
                *retry_headers(status).items(),
            ]
            is_head = self.conn.our_state is h11.SEND_RESPONSE and self.scope["method"] == "HEAD"
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=b"" if is_head else body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
        self._give_up()
