"""Returns the transport that reaches a server."""

from keras_transformers.dependencies.extras import needing
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.gateway.servers.transport import AsyncTransport


def connect(target: Target, root_certificates: str | None) -> AsyncTransport:
    """Returns the transport for a target, importing only the libraries of its protocol.

    Args:
        target: the server's address.
        root_certificates: a PEM file, or None for the system's certificates.

    Raises:
        ValueError: the target speaks KServe's protocol.
    """
    if target.api != "tf_serving":
        raise ValueError(
            f"server {target.address}: a gateway asks TF Serving's API: leave out 'kserve+'"
        )
    with needing("serving"):
        if target.protocol == "rest":
            from keras_transformers.serving.gateway.servers.rest import AsyncRestTransport

            return AsyncRestTransport(target.address, root_certificates)
        from keras_transformers.serving.gateway.servers.grpc import AsyncGrpcTransport

        return AsyncGrpcTransport(target.address, root_certificates, tls=target.tls)
