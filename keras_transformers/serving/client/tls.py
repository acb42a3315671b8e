"""Holds a client's certificates for TLS, and explains handshakes that fail."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from keras_transformers.serving.protocol.pem import check_certificates, check_key

if TYPE_CHECKING:
    import grpc

# What OpenSSL, BoringSSL, httpx and gRPC say of a connection, in lower case -> what it means. The
# first fragment that the message has counts.
_ON_TLS = {
    "certificate required": "the server demands a client certificate: pass "
    "client_certificate=FILE, client_key=FILE",
    "unknown ca": "the server does not trust the authority of client_certificate: pass one that "
    "it has signed",
    "name mismatch": "the server's certificate is for another name: connect by a name in it",
    "address mismatch": "the server's certificate is for another name: connect by a name in it",
    "name verification": "the server's certificate is for another name: connect by a name in it",
    "alert certificate expired": "client_certificate has expired: renew it",
    "expired": "the server's certificate has expired: renew it there",
    "certificate verify failed": "the server's certificate is signed by an authority that this "
    "client does not trust: pass root_certificates=FILE",
    "wrong version number": "the server does not speak TLS on this port: connect to {plain}",
    "alpn": "this is a port for REST: connect to https://host:port",
    "closed": "the server ended the handshake: if it demands a client certificate, pass "
    "client_certificate=FILE, client_key=FILE, signed by the authority that it trusts",
    "disconnected": "the server ended the connection: if this is its port for gRPC, connect to "
    "grpcs://host:port",
}
_WITHOUT_TLS = {
    "http1.x server": "this is a port for REST: connect to http://host:port",
    "illegal request line": "this is a port for gRPC: connect to grpc://host:port",
    "disconnected": "if the server speaks TLS, connect to {tls}",
    "closed": "if the server speaks TLS, connect to {tls}",
}
_PLAIN = {"https": "http", "grpcs": "grpc"}  # scheme with TLS -> without


@dataclass(frozen=True)
class ClientTls:
    """PEM files for a client's TLS.

    Attributes:
        root_certificates: the authorities to trust; None for the system's.
        certificate: the certificate chain to show to servers that demand one; None for none.
        key: the certificate's private key, without a password.

    Raises:
        FileNotFoundError: a file does not exist.
        OSError: a file is not PEM, or the key is not the certificate's.
        ValueError: there is a certificate without a key, or a key without a certificate.
    """

    root_certificates: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(
                f"client_certificate is {self.certificate}, client_key is {self.key}: pass both, "
                "or neither"
            )
        if self.root_certificates is not None:
            check_certificates(self.root_certificates)
        if self.certificate is not None and self.key is not None:
            check_certificates(self.certificate)
            check_key(self.certificate, self.key)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file."""
        return self.root_certificates is None and self.certificate is None

    def context(self) -> ssl.SSLContext:
        """Returns the context of REST's connections."""
        if self.root_certificates is None:
            import httpx

            context = httpx.create_ssl_context()
        else:
            context = ssl.create_default_context(cafile=self.root_certificates)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def credentials(self) -> "grpc.ChannelCredentials":
        """Returns the credentials of gRPC's channels."""
        import grpc

        files = (self.root_certificates, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(file and file.read_bytes() for file in files))


def connection_failure(url: str, message: str) -> str:
    """Returns what a library says of a connection that failed, with its remedy if it has one.

    Args:
        url: what the client connects to, such as "grpcs://host:port".
        message: what the library says.
    """
    scheme, _, address = url.partition("://")
    text = message.lower().replace("_", " ")
    for fragment, remedy in (_ON_TLS if scheme in _PLAIN else _WITHOUT_TLS).items():
        if fragment in text:
            plain, encrypted = f"{_PLAIN.get(scheme)}://{address}", f"{scheme}s://{address}"
            remedy = remedy.format(plain=plain, tls=encrypted)
            return f"{url}: {remedy} ({message})"
    return f"{url}: {message}"
