"""Asks a server over gRPC."""

import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc.aio
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.client import grpc_messages
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import (
    Call,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    credentials,
    outgoing,
)
from keras_transformers.serving.gateway.servers.transport import Outputs
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec


class AsyncGrpcTransport:
    """Calls TF Serving's gRPC services; `transport.AsyncTransport` describes the methods.

    Args:
        address: host:port.
        tls: the files for TLS; None for no encryption.
        api_key: the key to show; None for none.
    """

    def __init__(self, address: str, tls: ClientTls | None, api_key: str | None = None) -> None:
        self._api_key = credentials(api_key)
        self._address = address
        self._url = f"{'grpc' if tls is None else 'grpcs'}://{address}"
        self._credentials = None if tls is None else tls.credentials()

    @functools.cached_property
    def _channel(self) -> Any:
        """The connection, which belongs to the event loop that first asks for it."""
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._address, grpc_messages.OPTIONS)
        return grpc.aio.secure_channel(self._address, self._credentials, grpc_messages.OPTIONS)

    @functools.cached_property
    def _predictions(self) -> Any:
        return prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    @functools.cached_property
    def _models(self) -> Any:
        return model_service_pb2_grpc.ModelServiceStub(self._channel)

    async def predict(  # noqa: D102
        self, call: Call, inputs: Arrays, outputs: Mapping[str, TensorSpec]
    ) -> Outputs:
        request = grpc_messages.predict(call, inputs)
        response = await self._answer(self._predictions.Predict, request, call.timeout_s)
        return grpc_messages.read_outputs(response)

    async def stream(  # noqa: D102
        self, call: Call, inputs: Arrays, outputs: Mapping[str, TensorSpec]
    ) -> AsyncIterator[Outputs]:
        yield await self.predict(call, inputs, outputs)

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        request = grpc_messages.status(model)
        response = await self._answer(self._models.GetModelStatus, request, timeout_s)
        return grpc_messages.read_status(response)

    async def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        request = grpc_messages.metadata(model)
        response = await self._answer(self._predictions.GetModelMetadata, request, timeout_s)
        return grpc_messages.read_signatures(response)

    async def names(self, timeout_s: float) -> list[str] | None:  # noqa: D102
        return None  # TF Serving's gRPC API does not tell them

    async def close(self) -> None:  # noqa: D102
        await self._channel.close()

    async def _answer(self, method: Any, request: Message, timeout_s: float) -> Message:
        with grpc_messages.request_errors(self._url, timeout_s):
            metadata = tuple((self._api_key | outgoing()).items())
            return await method(request, timeout=timeout_s, metadata=metadata)
