"""A client that is silent, or sends byte by byte, does not keep its connection, nor others out."""

import asyncio
import contextlib
import functools
import json
import math
import socket
import threading
import time

import pytest

uvicorn = pytest.importorskip("uvicorn")

from keras_transformers.serving.server import connections  # noqa: E402
from keras_transformers.serving.server.connections import BoundedConnection  # noqa: E402
from keras_transformers.serving.server.http import listen  # noqa: E402

IDLE_S = 0.4
LIMIT = 8  # connections of the server `crowded`; two unfinished requests for each address
MOST_BYTES = 10**6  # of its unfinished bodies
REQUEST = b"POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


async def app(scope, receive, send):
    """Answers after the body; to /refuse at once, to /late a moment later, to /big at length.

    It answers to /slow after more time than a client has for its next request.
    """
    if scope["path"] != "/refuse":
        while (await receive()).get("more_body"):
            pass
    await asyncio.sleep({"/late": 0.05, "/slow": 3 * IDLE_S}.get(scope["path"], 0))
    start = b"x" * 2**25 if scope["path"] == "/big" else b""
    headers = [(b"content-length", b"%d" % (len(start) + 2))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": start, "more_body": True})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.contextmanager
def run(max_unfinished_bytes=math.inf, **options):
    """Runs a server with bounded connections; yields its port and the set of its connections."""
    http = functools.partial(BoundedConnection, max_unfinished_bytes=max_unfinished_bytes)
    config = uvicorn.Config(app, http=http, log_config=None, lifespan="off", **options)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True
        )
        thread.start()
        yield listening.getsockname()[1], server.server_state.connections
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def port():
    with run(timeout_keep_alive=IDLE_S) as (port, _):
        yield port


@pytest.fixture
def connection(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        yield made


@pytest.fixture(scope="module")
def crowded():
    options = {"timeout_keep_alive": 30, "limit_concurrency": LIMIT}
    with run(max_unfinished_bytes=MOST_BYTES, **options) as (port, _):
        yield port


@pytest.fixture
def connect(crowded):
    """Returns a function that connects to the server with few connections and sends some bytes."""
    with contextlib.ExitStack() as stack:

        def make(data, address="127.0.0.1"):
            made = socket.create_connection(
                ("127.0.0.1", crowded), timeout=20, source_address=(address, 0)
            )
            made.sendall(data)
            return stack.enter_context(made)

        yield make


def refusal(connection):
    """Returns the status and the error of an answer after which the server closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1000):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return int(head.split()[1]), json.loads(body)["error"]


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


def test_clients_that_come_before_the_event_loop_wait():
    with listen("127.0.0.1", 0) as listening:
        socket.create_connection(listening.getsockname(), 5).close()


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


@pytest.mark.parametrize("part", [b"", b"GET / HT", REQUEST % (b"", 1000) + b"x"])
def test_what_arrives_whole_is_answered_however_many_others_wait(connect, part):
    waiting = [connect(part) for _ in range(5 * LIMIT)]
    for _ in range(3):
        assert answer(connect(REQUEST % (b"", 4) + b"body")).startswith(b"HTTP/1.1 200")
    ended = 0
    for other in waiting:
        other.settimeout(0.01)
        try:
            ended += len(other.recv(1000)) >= 0
        except TimeoutError:
            continue
        except ConnectionResetError:
            ended += 1
    assert ended >= 4 * LIMIT


def test_the_requests_that_an_address_leaves_unfinished_are_few(connect, monkeypatch):
    """The one of which the least has arrived is closed, so that others can become complete."""
    monkeypatch.setattr(connections, "_GRACE_S", 60)
    elsewhere = connect(REQUEST % (b"", 4) + b"b", "127.0.0.2")
    first, second, third = (connect(REQUEST % (b"", 4) + part) for part in (b"bo", b"b", b"bo"))
    time.sleep(0.1)  # there are too many now, but that does not count before they are late
    first.sendall(b"d")
    monkeypatch.setattr(connections, "_GRACE_S", 0.05)
    third.sendall(b"d")
    expected = "2 requests from this address are unfinished: send faster, or fewer"
    assert refusal(second) == (503, expected)
    for connection, rest in ((first, b"y"), (third, b"y"), (elsewhere, b"ody")):
        connection.sendall(rest)
        assert answer(connection).startswith(b"HTTP/1.1 200")


def test_the_bodies_that_are_unfinished_are_bounded_together(connect):
    """The address with the most loses its oldest; small and discarded ones do not matter."""
    size = MOST_BYTES // 2
    small = connect(REQUEST % (b"", 4) + b"bod")
    elsewhere = connect(REQUEST % (b"", size) + b"x" * (size - 1), "127.0.0.2")
    thrown_away = connect(REQUEST % (b"refuse", MOST_BYTES) + b"x" * (MOST_BYTES - 1))
    answer(thrown_away)
    first, second = (connect(REQUEST % (b"", size) + (size // 2) * b"x") for _ in range(2))
    second.sendall(100 * b"x")
    expected = f"unfinished requests have more than {MOST_BYTES} bytes: try again later"
    assert refusal(first) == (503, expected)
    second.sendall((size // 2 - 100) * b"x")
    thrown_away.sendall(b"x" + REQUEST % (b"", 0))
    small.sendall(b"y")
    elsewhere.sendall(b"x")
    for connection in (elsewhere, small, second, thrown_away):
        assert answer(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_closes_its_half_gets_its_answers(connection, count):
    connection.sendall(count * (REQUEST % (b"late", 4) + b"body"))
    connection.shutdown(socket.SHUT_WR)
    data = b""
    while piece := connection.recv(1000):
        data += piece
    assert data.count(b"\r\n\r\nok") == count


def test_a_client_that_closes_its_half_too_early_is_not_awaited(connection):
    connection.sendall(REQUEST % (b"", 4) + b"bod")
    connection.shutdown(socket.SHUT_WR)
    start = time.monotonic()
    assert connection.recv(1000) == b""
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "data", [b"no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\nLong: " + b"x" * 10**5]
)
def test_what_is_not_http_gets_json_too(connection, data):
    connection.sendall(data)
    assert refusal(connection) == (400, "Invalid HTTP request received.")


def test_a_client_that_does_not_read_its_answer_is_given_up():
    with (
        run(timeout_keep_alive=IDLE_S) as (port, alive),
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
    ):
        connection.sendall(REQUEST % (b"big", 0))
        assert connection.recv(1)
        deadline = time.monotonic() + 20
        while alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive
