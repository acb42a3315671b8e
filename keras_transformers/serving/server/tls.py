"""Provides the local server's certificates, and TLS for its REST connections."""

import asyncio
import contextlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from keras_transformers.serving.protocol.pem import check_certificates, check_key
from keras_transformers.serving.server.logs import Seldom

__all__ = ["Tls"]

_RECORD = 16 * 1024  # bytes; the largest TLS record
_NOT_ENCRYPTED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": "this port speaks TLS: send the request to https://"}'
)

_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


@dataclass(frozen=True)
class Tls:
    """PEM files for TLS, which REST and gRPC share.

    Attributes:
        certificate: the server's certificate chain.
        key: the certificate's private key.
        client_ca: the authority that must have signed clients' certificates; None requires none.

    Raises:
        FileNotFoundError: a file does not exist.
        OSError: a file is not PEM, or the key is not the certificate's.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        check_certificates(self.certificate)
        check_key(self.certificate, self.key)
        if self.client_ca is not None:
            check_certificates(self.client_ca)

    def credentials(self) -> grpc.ServerCredentials:
        """Returns gRPC's grpc.ServerCredentials."""
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=self.client_ca.read_bytes() if self.client_ca else None,
            require_client_auth=self.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """Returns the context of REST's connections."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """TLS between a socket and the protocol that uses it.

    asyncio's own TLS reports a connection to a protocol only after the handshake, so handshakes
    that never end could not be limited, and it cannot write once the client has closed its half.

    Args:
        protocol: gets this object as its transport, before the handshake starts.
        context: the server's certificate and the authorities that it trusts.
    """

    _transport: asyncio.Transport
    _agreed = False  # the handshake is complete
    _read_all = False  # the client sends no more

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
        super().__init__({"sslcontext": context})
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    # Called by the socket's transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._read_all or self.is_closing():
            return
        self._incoming.write(data)
        pieces = []
        try:
            if not self._agreed:
                self._tls.do_handshake()
                self._agreed = True
            while piece := self._tls.read(_RECORD):
                pieces.append(piece)
            self._read_all = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._read_all = True
        except ssl.SSLError as error:
            _logger.warning("closed a TLS connection: %s", error.reason or error)
            if error.reason == "HTTP_REQUEST":  # it understands no alert
                self._outgoing.read()
                self._transport.write(_NOT_ENCRYPTED)
            self._send()  # the alert with the reason
            self._transport.close()
            return
        self._send()
        if pieces:
            self._protocol.data_received(b"".join(pieces))
        if self._read_all:
            self._end_reading()

    def eof_received(self) -> bool:
        """Keeps the connection until the protocol closes it."""
        if not self._read_all:
            self._read_all = True
            self._end_reading()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # Called by the protocol.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends data; drops it if the handshake is not complete."""
        if data and self._agreed and not self.is_closing():
            self._tls.write(data)
            self._send()

    def close(self) -> None:
        """Announces the end of the data, and closes once everything is sent."""
        if self._agreed and not self.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the client does not need to confirm it
                self._tls.unwrap()
            self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        value = super().get_extra_info(name)
        return self._transport.get_extra_info(name, default) if value is None else value

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _end_reading(self) -> None:
        if not self._protocol.eof_received():
            self.close()
