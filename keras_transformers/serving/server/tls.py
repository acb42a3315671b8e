"""The local server's certificates."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from keras_transformers.serving.protocol.pem import check_certificates, check_key

__all__ = ["Tls"]


@dataclass(frozen=True)
class Tls:
    """PEM files for TLS, which REST and gRPC share.

    Attributes:
        certificate: the server's certificate chain.
        key: the certificate's private key.
        client_ca: the authority that must have signed clients' certificates; None asks for none.

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

    def credentials(self) -> Any:
        """Returns gRPC's grpc.ServerCredentials."""
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=self.client_ca.read_bytes() if self.client_ca else None,
            require_client_auth=self.client_ca is not None,
        )

    def uvicorn_options(self) -> dict[str, Any]:
        """Returns keyword arguments of uvicorn.Config, for REST."""
        options: dict[str, Any] = {
            "ssl_certfile": str(self.certificate),
            "ssl_keyfile": str(self.key),
        }
        if self.client_ca:
            options |= {"ssl_ca_certs": str(self.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options
