"""Defines the client's transport for KServe v2 over gRPC."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.client.grpc import GrpcTransport
from keras_transformers.serving.client.kserve import answers
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
)
from keras_transformers.serving.protocol.kserve import messages as converting
from keras_transformers.serving.protocol.kserve.service import messages, path
from keras_transformers.serving.protocol.kserve.signatures import read_metadata
from keras_transformers.serving.protocol.signatures import ModelSpec


class KServeGrpcTransport(GrpcTransport):
    """Calls KServe's gRPC API; `transport.Transport` describes the methods."""

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        name, version = _model(call.model)
        request = messages().ModelInferRequest(model_name=name, model_version=version)
        for parameter, value in answers.parameters(call.signature_name).items():
            request.parameters[parameter].string_param = value
        for key, array in inputs.items():
            converting.add_tensor(request.inputs, key, array, request.raw_input_contents)
        response = self._answer(self._method("ModelInfer"), request, call.timeout_s)
        return {
            output.name: converting.read_tensor(output, response.raw_output_contents, index)
            for index, output in enumerate(response.outputs)
        }

    def classify(  # noqa: D102
        self, call: Call, examples: Sequence[Features]
    ) -> NoReturn:
        answers.refuse_examples("Classify")

    def regress(self, call: Call, examples: Sequence[Features]) -> NoReturn:  # noqa: D102
        answers.refuse_examples("Regress")

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        metadata = self._metadata(model, timeout_s)
        name, version = _model(model)
        request = messages().ModelReadyRequest(name=name, version=version)
        response = self._answer(self._method("ModelReady"), request, timeout_s)
        return answers.statuses(metadata, ready=response.ready)

    def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        return read_metadata(self._metadata(model, timeout_s))

    def _metadata(self, model: ModelSpec, timeout_s: float) -> dict[str, Any]:
        name, version = _model(model)
        request = messages().ModelMetadataRequest(name=name, version=version)
        response = self._answer(self._method("ModelMetadata"), request, timeout_s)
        return converting.read_metadata_message(response)

    def _method(self, name: str) -> Callable[..., Message]:
        return self._channel.unary_unary(
            path(name),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(messages(), f"{name}Response").FromString,
        )


def _model(model: ModelSpec) -> tuple[str, str]:
    """Returns a model's name and version; a label is a version, too."""
    version = model.label if model.version is None else str(model.version)
    return model.name, version or ""
