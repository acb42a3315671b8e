"""Defines the client's gRPC transport."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import grpc
import numpy as np
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.client import grpc_messages
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
)
from keras_transformers.serving.protocol.signatures import ModelSpec


class GrpcTransport:
    """Calls TF Serving's gRPC services; `transport.Transport` describes the methods.

    Args:
        address: host:port.
        root_certificates: a PEM file, or None for the system's certificates.
        tls: whether to encrypt the connection.
    """

    def __init__(self, address: str, root_certificates: str | None, *, tls: bool) -> None:
        if tls or root_certificates:
            roots = Path(root_certificates).read_bytes() if root_certificates else None
            credentials = grpc.ssl_channel_credentials(roots)
            self._channel = grpc.secure_channel(address, credentials, grpc_messages.OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address, grpc_messages.OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        request = grpc_messages.predict(call, inputs)
        response = self._answer(self._predictions.Predict, request, call.timeout_s)
        return grpc_messages.read_outputs(response)

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
        with grpc_messages.request_errors(timeout_s):
            return method(request, timeout=timeout_s)
