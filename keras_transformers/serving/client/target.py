"""Defines the address of a server, and the transport that reaches it."""

import contextlib
import urllib.parse
from dataclasses import dataclass, replace
from typing import Literal

from keras_transformers.dependencies.extras import needing
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import Transport

_KSERVE = "kserve+"  # before a scheme


@dataclass(frozen=True)
class Target:
    """The address of a server.

    Attributes:
        protocol: "rest" or "grpc".
        address: a URL for REST, host:port for gRPC.
        tls: whether the connection is encrypted.
        api: what the server speaks: TF Serving's API, or the Open Inference Protocol (KServe v2).
    """

    protocol: Literal["rest", "grpc"]
    address: str
    tls: bool
    api: Literal["tf_serving", "kserve"] = "tf_serving"

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Parses a target as a user types it.

        >>> Target.parse("localhost:8500")
        Target(protocol='grpc', address='localhost:8500', tls=False, api='tf_serving')
        >>> Target.parse("kserve+http://localhost:8080")
        Target(protocol='rest', address='http://localhost:8080', tls=False, api='kserve')

        Raises:
            ValueError: the port is missing, or the scheme is unknown.
        """
        if text.startswith(_KSERVE):
            return replace(cls.parse(text.removeprefix(_KSERVE)), api="kserve")
        with contextlib.suppress(ValueError):  # the port is not a number, or a bracket is left open
            url = urllib.parse.urlsplit(text if "://" in text else f"grpc://{text}")
            if url.scheme in ("http", "https") and url.hostname:
                return cls("rest", text.rstrip("/"), url.scheme == "https")
            is_whole = url.hostname and url.port and url.path in ("", "/")
            if url.scheme in ("grpc", "grpcs") and is_whole:
                return cls("grpc", url.netloc, url.scheme == "grpcs")
        raise ValueError(
            f"target {text!r}: pass http://host:port for REST, host:port for gRPC; "
            "https:// and grpcs:// are for TLS; with "
            f"{_KSERVE} before http:// or grpc:// for servers that speak KServe's protocol"
        )

    def encryption(self, tls: ClientTls) -> ClientTls | None:
        """Returns the files for TLS, or None if the connection is not encrypted.

        Args:
            tls: the files; any file for a gRPC target turns TLS on.

        Raises:
            ValueError: there are files, but the target is a URL without TLS.
        """
        if self.tls or (self.protocol == "grpc" and not tls.is_empty):
            return tls
        if not tls.is_empty:
            raise ValueError(
                f"target {self.address!r} has no TLS, which certificates are for: pass https://..."
            )
        return None


def connect(target: Target, tls: ClientTls, api_key: str | None = None) -> Transport:
    """Returns the transport for a target, importing only the libraries of its protocol.

    It sends nothing yet.

    Args:
        target: the server's address.
        tls: the files for TLS.
        api_key: the key to show; None for none.

    Raises:
        MissingExtraError: the libraries are not installed.
        ValueError: see `Target.encryption`.
    """
    encryption = target.encryption(tls)
    with needing("serving"):
        if target.api == "kserve":
            return _connect_kserve(target, encryption, api_key)
        if target.protocol == "rest":
            from keras_transformers.serving.client.rest import RestTransport

            return RestTransport(target.address, encryption, api_key)
        from keras_transformers.serving.client.grpc import GrpcTransport

        return GrpcTransport(target.address, encryption, api_key)


def _connect_kserve(target: Target, encryption: ClientTls | None, api_key: str | None) -> Transport:
    if target.protocol == "rest":
        from keras_transformers.serving.client.kserve.rest import KServeRestTransport

        return KServeRestTransport(target.address, encryption, api_key)
    from keras_transformers.serving.client.kserve.grpc import KServeGrpcTransport

    return KServeGrpcTransport(target.address, encryption, api_key)
