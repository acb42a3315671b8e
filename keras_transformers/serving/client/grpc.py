"""Defines the client's gRPC transport."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from keras_transformers.dependencies.untyped import Message
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.saved_model.description import shape_of
from keras_transformers.serving.client.tls import ClientTls, connection_failure
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    request_error,
)
from keras_transformers.serving.protocol.errors import Code
from keras_transformers.serving.protocol.signatures import ModelSpec

_NO_CONNECTION = "failed to connect to all addresses; last error: "


class GrpcTransport:
    """Calls TF Serving's gRPC services; `transport.Transport` describes the methods.

    Args:
        address: host:port.
        tls: the files for TLS; None for no encryption.
    """

    def __init__(self, address: str, tls: ClientTls | None) -> None:
        self._url = f"{'grpc' if tls is None else 'grpcs'}://{address}"
        options = [("grpc.max_receive_message_length", -1)]
        if tls is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, tls.credentials(), options)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        request = predict_pb2.PredictRequest()
        for name, array in inputs.items():
            dtype = tf.string if array.dtype == object else None
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array, dtype, array.shape))
        response = self._answer(self._predictions.Predict, request, call)
        return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}

    def classify(  # noqa: D102
        self, call: Call, examples: Sequence[Features]
    ) -> list[list[tuple[str, float]]]:
        request = classification_pb2.ClassificationRequest()
        request.input.example_list.examples.extend(itertools.starmap(_example, enumerate(examples)))
        response = self._answer(self._predictions.Classify, request, call)
        return [
            [(entry.label, entry.score) for entry in row.classes]
            for row in response.result.classifications
        ]

    def regress(self, call: Call, examples: Sequence[Features]) -> list[float]:  # noqa: D102
        request = regression_pb2.RegressionRequest()
        request.input.example_list.examples.extend(itertools.starmap(_example, enumerate(examples)))
        response = self._answer(self._predictions.Regress, request, call)
        return [regression.value for regression in response.result.regressions]

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        request = get_model_status_pb2.GetModelStatusRequest()
        response = self._answer(self._models.GetModelStatus, request, Call(model, "", timeout_s))
        states = get_model_status_pb2.ModelVersionStatus.State
        return [
            VersionStatus(entry.version, states.Name(entry.state), entry.status.error_message)
            for entry in response.model_version_status
        ]

    def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        call = Call(model, "", timeout_s)
        response = self._answer(self._predictions.GetModelMetadata, request, call)
        definitions = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(definitions)
        return {
            name: SignatureInfo(
                signature.method_name,
                {key: _spec(info) for key, info in signature.inputs.items()},
                {key: _spec(info) for key, info in signature.outputs.items()},
            )
            for name, signature in definitions.signature_def.items()
        }

    def close(self) -> None:  # noqa: D102
        self._channel.close()

    def _answer(self, method: Callable[..., Message], request: Message, call: Call) -> Message:
        """Fills in a request's model_spec, sends the request and returns the response."""
        spec, model = request.model_spec, call.model
        spec.name = model.name
        spec.signature_name = call.signature_name
        if model.version is not None:
            spec.version.value = model.version
        elif model.label:
            spec.version_label = model.label
        try:
            return method(request, timeout=call.timeout_s)
        except grpc.RpcError as error:
            message = error.details() or ""
            if message.startswith(_NO_CONNECTION):
                message = connection_failure(self._url, message.removeprefix(_NO_CONNECTION))
            raise request_error(Code[error.code().name], message, call.timeout_s) from error


def _example(row: int, features: Features) -> Message:
    """Returns a tf.train.Example: int becomes int64, float float, str and bytes bytes."""
    example = tf.train.Example()
    for name, value in features.items():
        values = list(value) if isinstance(value, list | tuple) else [value]
        feature = example.features.feature[name]
        place = f"example {row}: {name}"
        texts = [as_utf8(place, item) for item in values if isinstance(item, str | bytes)]
        if len(texts) == len(values):
            feature.bytes_list.value.extend(texts)
        elif all(isinstance(item, int) for item in values):
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    return example


def _spec(info: Message) -> TensorSpec:
    dtype = np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype) if info.dtype else None
    return TensorSpec(dtype, shape_of(info))
