"""TLS: a client cannot hold a connection by its handshake, and may close its half."""

import contextlib
import functools
import json
import os
import socket
import ssl
import time

import pytest

from keras_transformers.serving import Client, Limits, ModelSettings, Server
from keras_transformers.serving.server import http

IDLE_S = 1.0
REQUEST = b"GET /v1/models/m HTTP/1.1\r\nHost: localhost\r\n\r\n"


def request(signature, instances):
    body = json.dumps({"signature_name": signature, "instances": instances}).encode()
    head = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@pytest.fixture(scope="module")
def secure(tmp_path_factory, certificate, publish):
    """A server with 20 connections, each of which waits a second for its client."""
    base = tmp_path_factory.mktemp("m")
    publish(base, 1, 2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "_IDLE_S", IDLE_S)
        server = Server(
            [ModelSettings("m", base)],
            rest_port=0,
            grpc_port=0,
            limits=Limits(max_requests=1),
            tls=certificate,
        )
    with server:
        assert server.wait_until_loaded(60)
        yield server


@pytest.fixture
def raw(secure):
    """Returns a function that connects without a handshake."""
    with contextlib.ExitStack() as stack:

        def connect(port=secure.rest_port):
            made = socket.create_connection(("127.0.0.1", port), timeout=20)
            return stack.enter_context(made)

        yield connect


@pytest.fixture
def encrypted(raw, certificate):
    """Returns a function that connects; it gives the TLS object and its socket."""
    context = ssl.create_default_context(cafile=certificate.certificate)

    def connect():
        connection = raw()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        return Spoken(connection, tls, incoming, outgoing)

    return connect


class Spoken:
    """A client's TLS with all its steps in the test's hands."""

    def __init__(self, connection, tls, incoming, outgoing):
        self.connection, self.tls = connection, tls
        self._incoming, self._outgoing = incoming, outgoing
        self._do(tls.do_handshake)

    def _do(self, step, *arguments):
        """Takes a step, with what it needs from the server; None if that closes."""
        while True:
            try:
                return step(*arguments)
            except ssl.SSLWantReadError:
                self.flush()
                data = self.connection.recv(2**16)
                if not data:
                    return None
                self._incoming.write(data)
            finally:
                self.flush()

    def flush(self):
        if self._outgoing.pending:
            self.connection.sendall(self._outgoing.read())

    def send(self, data):
        self.tls.write(data)
        self.flush()

    def say_the_end(self):
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.flush()

    def read_all(self):
        data = b""
        with contextlib.suppress(ssl.SSLZeroReturnError):
            while piece := self._do(self.tls.read, 2**16):
                data += piece
        return data


@functools.cache
def hello():
    """Returns how a handshake begins."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="h")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def closed(connection):
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(2**16):
            pass
    return True


def test_a_handshake_that_never_ends_is_given_up(raw):
    connections = [raw() for _ in range(4)]
    start = time.monotonic()
    for connection, size in zip(connections, (0, 1, 50, None), strict=True):
        connection.sendall(hello()[:size])
    assert all(map(closed, connections))
    assert time.monotonic() - start >= 0.9 * IDLE_S


@pytest.mark.parametrize("size", [0, 50])
def test_handshakes_that_do_not_end_keep_nobody_out(raw, encrypted, size):
    waiting = [raw() for _ in range(60)]
    for connection in waiting:
        connection.sendall(hello()[:size])
    ours = encrypted()
    ours.send(REQUEST)
    assert ours._do(ours.tls.read, 2**16).startswith(b"HTTP/1.1 200")
    assert all(map(closed, waiting[:40]))


def test_calls_get_through_while_grpc_waits_for_handshakes(raw, secure, certificate):
    for size in 100 * [0, 50]:
        raw(secure.grpc_port).sendall(hello()[:size])
    target = f"grpcs://localhost:{secure.grpc_port}"
    with Client(target, root_certificates=str(certificate.certificate)) as client:
        assert client.predict({"x": [1.0]}, model="m")["y"].tolist() == [2.5]


@pytest.mark.parametrize("how", ["by TLS", "by TCP", "by both"])
def test_a_client_that_closes_its_half_gets_its_answers(encrypted, how):
    ours = encrypted()
    ours.send(2 * request("spin", [5000]))  # takes longer than the rest of what the client sends
    if how != "by TCP":
        ours.say_the_end()
    if how != "by TLS":
        ours.connection.shutdown(socket.SHUT_WR)
    assert ours.read_all().count(b'{"predictions": [') == 2


def test_a_request_without_tls_is_refused(raw, caplog):
    for _ in range(3):
        connection = raw()
        connection.sendall(REQUEST)
        answer = b"".join(iter(lambda c=connection: c.recv(2**16), b""))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"https://" in answer
    assert len([each for each in caplog.messages if "closed a TLS connection" in each]) <= 1


def test_a_damaged_record_is_closed(encrypted):
    ours = encrypted()
    ours.connection.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))
    assert closed(ours.connection)


def test_long_bodies_pass_both_ways(encrypted):
    ours = encrypted()
    texts = ["x" * 500_000, "y" * 500_000]
    ours.send(request("text", texts))
    ours.say_the_end()
    head, _, body = ours.read_all().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    found = [each["translation"] for each in json.loads(body)["predictions"]]
    assert found == [text.upper() for text in texts]
