"""Defines the client's transport for KServe v2 over gRPC."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.client.grpc import GrpcTransport
from keras_transformers.serving.client.kserve.transport import (
    KServeTransport,
    parameters,
    version_of,
)
from keras_transformers.serving.client.transport import Call, TensorSpec
from keras_transformers.serving.protocol.kserve import messages as converting
from keras_transformers.serving.protocol.kserve.service import messages, path
from keras_transformers.serving.protocol.signatures import ModelSpec


class KServeGrpcTransport(KServeTransport, GrpcTransport):
    """Calls KServe's gRPC API; `transport.Transport` describes the methods."""

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        request = messages().ModelInferRequest(
            model_name=call.model.name, model_version=version_of(call.model)
        )
        for parameter, value in parameters(call.signature_name).items():
            request.parameters[parameter].string_param = value
        for key, array in inputs.items():
            converting.add_tensor(request.inputs, key, array, request.raw_input_contents)
        response = self._answer(self._method("ModelInfer"), request, call.timeout_s)
        return {
            output.name: converting.read_tensor(output, response.raw_output_contents, index)
            for index, output in enumerate(response.outputs)
        }

    def _metadata(self, model: ModelSpec, timeout_s: float) -> dict[str, Any]:
        request = messages().ModelMetadataRequest(name=model.name, version=version_of(model))
        response = self._answer(self._method("ModelMetadata"), request, timeout_s)
        return converting.read_metadata_message(response)

    def _is_ready(self, model: ModelSpec, timeout_s: float) -> bool:
        request = messages().ModelReadyRequest(name=model.name, version=version_of(model))
        return self._answer(self._method("ModelReady"), request, timeout_s).ready

    def _method(self, name: str) -> Callable[..., Message]:
        return self._channel.unary_unary(
            path(name),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(messages(), f"{name}Response").FromString,
        )
