"""Writes TF Serving's gRPC requests and reads its answers, for any transport of clients."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    regression_pb2,
)

from keras_transformers.dependencies.graph_errors import sentence
from keras_transformers.dependencies.untyped import Message
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.saved_model.description import shape_of
from keras_transformers.serving.client.tls import connection_failure
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    request_error,
)
from keras_transformers.serving.protocol.errors import Code, UnreachableError
from keras_transformers.serving.protocol.signatures import ModelSpec

OPTIONS = [("grpc.max_receive_message_length", -1)]  # of channels
_NO_CONNECTION = "failed to connect to all addresses; last error: "


def predict(call: Call, inputs: Mapping[str, np.ndarray]) -> Message:
    """Returns a Predict request."""
    request = predict_pb2.PredictRequest()
    for name, array in inputs.items():
        dtype = tf.string if array.dtype == object else None
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array, dtype, array.shape))
    return _to_model(request, call.model, call.signature_name)


def classify(call: Call, examples: Sequence[Features]) -> Message:
    """Returns a Classify request."""
    return _with_examples(classification_pb2.ClassificationRequest(), call, examples)


def regress(call: Call, examples: Sequence[Features]) -> Message:
    """Returns a Regress request."""
    return _with_examples(regression_pb2.RegressionRequest(), call, examples)


def status(model: ModelSpec) -> Message:
    """Returns a request for the state of each version."""
    return _to_model(get_model_status_pb2.GetModelStatusRequest(), model)


def metadata(model: ModelSpec) -> Message:
    """Returns a request for the signatures of a version."""
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    return _to_model(request, model)


@contextlib.contextmanager
def request_errors(server: str, timeout_s: float) -> Iterator[None]:
    """Raises a RequestError where gRPC gets no answer, or a refusal.

    Args:
        server: the server's address, such as "grpcs://host:port".
        timeout_s: how long the request was allowed to take.
    """
    try:
        yield
    except grpc.RpcError as error:
        message = error.details() or ""
        if message.startswith(_NO_CONNECTION):
            message = connection_failure(server, message.removeprefix(_NO_CONNECTION))
            raise UnreachableError(Code.UNAVAILABLE, message) from error
        trailing = dict(error.trailing_metadata() or ())
        headers = {key: value for key, value in trailing.items() if isinstance(value, str)}
        raise request_error(Code[error.code().name], message, timeout_s, headers) from error


def read_outputs(response: Message) -> dict[str, np.ndarray]:
    """Returns the arrays in the answer to a Predict request."""
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def read_status(response: Message) -> list[VersionStatus]:
    """Returns the state of each version."""
    states = get_model_status_pb2.ModelVersionStatus.State
    return [
        VersionStatus(entry.version, states.Name(entry.state), sentence(entry.status.error_message))
        for entry in response.model_version_status
    ]


def read_signatures(response: Message) -> dict[str, SignatureInfo]:
    """Returns the signatures in a version's metadata."""
    definitions = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(definitions)
    return signature_infos(definitions.signature_def)


def signature_infos(definitions: Mapping[str, Message]) -> dict[str, SignatureInfo]:
    """Returns the signatures of a SavedModel: name -> SignatureDef."""
    return {
        name: SignatureInfo(
            signature.method_name,
            {key: _spec(info) for key, info in signature.inputs.items()},
            {key: _spec(info) for key, info in signature.outputs.items()},
        )
        for name, signature in definitions.items()
    }


def _to_model(request: Message, model: ModelSpec, signature_name: str = "") -> Message:
    """Fills in a request's model_spec."""
    spec = request.model_spec
    spec.name = model.name
    spec.signature_name = signature_name
    if model.version is not None:
        spec.version.value = model.version
    elif model.label:
        spec.version_label = model.label
    return request


def _with_examples(request: Message, call: Call, examples: Sequence[Features]) -> Message:
    request.input.example_list.examples.extend(itertools.starmap(_example, enumerate(examples)))
    return _to_model(request, call.model, call.signature_name)


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
