"""Defines the client's gRPC transport."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import grpc
import numpy as np
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.client import grpc_messages
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    credentials,
    outgoing,
)
from keras_transformers.serving.protocol.signatures import ModelSpec


class GrpcTransport:
    """Calls TF Serving's gRPC services; `transport.Transport` describes the methods.

    Args:
        address: host:port.
        tls: the files for TLS; None for no encryption.
        api_key: the key to show; None for none.
    """

    def __init__(self, address: str, tls: ClientTls | None, api_key: str | None = None) -> None:
        self._credentials = credentials(api_key)
        self._url = f"{'grpc' if tls is None else 'grpcs'}://{address}"
        if tls is None:
            self._channel = grpc.insecure_channel(address, grpc_messages.OPTIONS)
        else:
            of_channel = tls.credentials()
            self._channel = grpc.secure_channel(address, of_channel, grpc_messages.OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        request = grpc_messages.predict(call, inputs)
        response = self._answer(self._predictions.Predict, request, call.timeout_s)
        return grpc_messages.read_outputs(response)

    def stream(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> Iterator[dict[str, np.ndarray]]:
        # The service of TensorFlow Serving 2.21 has no method that answers in parts.
        yield self.predict(call, inputs, outputs)

    def classify(  # noqa: D102
        self, call: Call, examples: Sequence[Features]
    ) -> list[list[tuple[str, float]]]:
        request = grpc_messages.classify(call, examples)
        response = self._answer(self._predictions.Classify, request, call.timeout_s)
        return [
            [(entry.label, entry.score) for entry in row.classes]
            for row in response.result.classifications
        ]

    def regress(self, call: Call, examples: Sequence[Features]) -> list[float]:  # noqa: D102
        request = grpc_messages.regress(call, examples)
        response = self._answer(self._predictions.Regress, request, call.timeout_s)
        return [regression.value for regression in response.result.regressions]

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        request = grpc_messages.status(model)
        return grpc_messages.read_status(
            self._answer(self._models.GetModelStatus, request, timeout_s)
        )

    def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        request = grpc_messages.metadata(model)
        response = self._answer(self._predictions.GetModelMetadata, request, timeout_s)
        return grpc_messages.read_signatures(response)

    def close(self) -> None:  # noqa: D102
        self._channel.close()

    def _answer(
        self, method: Callable[..., Message], request: Message, timeout_s: float
    ) -> Message:
        with grpc_messages.request_errors(self._url, timeout_s):
            metadata = tuple((self._credentials | outgoing()).items())
            return method(request, timeout=timeout_s, metadata=metadata)
