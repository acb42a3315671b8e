"""A client that is silent, or sends byte by byte, does not keep its connection."""

import asyncio
import socket
import threading
import time

import pytest

uvicorn = pytest.importorskip("uvicorn")

from keras_transformers.serving.server.connections import BoundedConnection  # noqa: E402

IDLE_S = 0.4
REQUEST = b"POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


async def app(scope, receive, send):
    """Answers after the body, but to /refuse at once, and to /slow after a while."""
    if scope["path"] != "/refuse":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * IDLE_S)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def port():
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        timeout_keep_alive=IDLE_S,
        log_config=None,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True
        )
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def connection(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        yield made


def trickle(connection, seconds=20.0):
    """Sends a byte now and then; returns the seconds until the server closed."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        try:
            connection.sendall(b"x")
        except OSError:
            return time.monotonic() - start
        time.sleep(IDLE_S / 10)
    raise AssertionError("the connection is still open")


def answer(connection):
    data = b""
    while not data.endswith(b"\r\n\r\nok"):
        piece = connection.recv(1000)
        assert piece, f"closed after {data!r}"
        data += piece
    return data


def test_a_silent_connection_is_closed(connection):
    start = time.monotonic()
    assert connection.recv(10) == b""
    assert time.monotonic() - start >= 0.9 * IDLE_S


def test_a_head_that_trickles_in_is_closed(connection):
    connection.sendall(b"GET /")
    assert trickle(connection) >= 0.9 * IDLE_S


def test_a_later_head_that_trickles_in_is_closed(connection):
    connection.sendall(REQUEST % (b"", 0))
    answer(connection)
    connection.sendall(b"GET /")
    assert trickle(connection) >= 0.9 * IDLE_S


def test_what_is_left_of_a_refused_body_is_not_awaited_for_ever(connection):
    connection.sendall(REQUEST % (b"refuse", 10**6))
    answer(connection)
    assert trickle(connection) >= 0.9 * IDLE_S


@pytest.mark.slow
def test_a_request_that_takes_longer_is_answered(connection):
    for _ in range(2):
        connection.sendall(REQUEST % (b"slow", 4) + b"body")
        assert answer(connection).startswith(b"HTTP/1.1 200")


def test_the_body_of_a_request_under_way_may_take_its_time(connection):
    connection.sendall(REQUEST % (b"", 8))
    for byte in b"the body":
        time.sleep(IDLE_S / 4)
        connection.sendall(bytes([byte]))
    assert answer(connection).startswith(b"HTTP/1.1 200")
    connection.sendall(REQUEST % (b"", 0))  # the connection still works
    answer(connection)
