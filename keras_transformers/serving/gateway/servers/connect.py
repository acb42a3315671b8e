"""Returns the transport that reaches a server."""

from keras_transformers.dependencies.extras import needing
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.gateway.servers.transport import AsyncTransport


def connect(target: Target, tls: ClientTls, api_key: str | None = None) -> AsyncTransport:
    """Returns the transport for a target, importing only the libraries of its protocol.

    Args:
        target: the server's address.
        tls: the files for TLS.
        api_key: the key to show; None for none.

    Raises:
        ValueError: the target speaks KServe's protocol; or see `Target.encryption`.
    """
    if target.api != "tf_serving":
        raise ValueError(
            f"server {target.address}: a gateway asks TF Serving's API: leave out 'kserve+'"
        )
    encryption = target.encryption(tls)
    with needing("serving"):
        if target.protocol == "rest":
            from keras_transformers.serving.gateway.servers.rest import AsyncRestTransport

            return AsyncRestTransport(target.address, encryption, api_key)
        from keras_transformers.serving.gateway.servers.grpc import AsyncGrpcTransport

        return AsyncGrpcTransport(target.address, encryption, api_key)
