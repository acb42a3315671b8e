"""Answers TF Serving's messages, from gRPC or warm-up records, with a loaded model.

Each function takes the model, the request and a function that runs a signature, and raises
RequestError if the request is rejected or fails.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from keras_transformers.dependencies.untyped import Message
from keras_transformers.saved_model.warm_up import examples_of
from keras_transformers.serving.protocol import requests
from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.requests import CLASSIFY, REGRESS, Run
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE, Servable

SIGNATURE_FIELD = "signature_def"

_MAX_RANK = 16
# A tensor may hold fewer values than its shape claims; the last value then repeats. A short message
# can thus request much memory, so this limits the elements, or the bytes of repeated strings.
_MAX_REPEATED = 1_000_000


def predict(model: Servable, request: Message, run: Run) -> Message:
    """Answers a PredictRequest with a PredictResponse."""
    signature = requests.predict_signature(model, request.model_spec.signature_name)
    requests.check_names(signature, request.inputs)  # before allocating the first array
    inputs = {name: to_array(name, tensor) for name, tensor in request.inputs.items()}
    outputs = requests.predict(signature, inputs, run, output_filter=list(request.output_filter))
    response = predict_pb2.PredictResponse()
    for name, array in outputs.items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(array, signature.outputs[name].dtype))
    response.model_spec.signature_name = signature.name
    return response


def classify(model: Servable, request: Message, run: Run) -> Message:
    """Answers a ClassificationRequest with a ClassificationResponse."""
    response = classification_pb2.ClassificationResponse()
    _classify(model, request.model_spec, request.input, run, response.result)
    response.model_spec.signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    return response


def regress(model: Servable, request: Message, run: Run) -> Message:
    """Answers a RegressionRequest with a RegressionResponse."""
    response = regression_pb2.RegressionResponse()
    _regress(model, request.model_spec, request.input, run, response.result)
    response.model_spec.signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    return response


def multi_inference(model: Servable, request: Message, run: Run) -> Message:
    """Answers a MultiInferenceRequest with a MultiInferenceResponse."""
    names = [task.model_spec.signature_name or DEFAULT_SIGNATURE for task in request.tasks]
    if len(set(names)) < len(names):
        twice = min(name for name, count in Counter(names).items() if count > 1)
        raise invalid(f"Duplicate evaluation of signature: {twice}")
    response = inference_pb2.MultiInferenceResponse()
    for task, name in zip(request.tasks, names, strict=True):
        result = response.results.add()
        if task.method_name == CLASSIFY:
            _classify(model, task.model_spec, request.input, run, result.classification_result)
        elif task.method_name == REGRESS:
            _regress(model, task.model_spec, request.input, run, result.regression_result)
        else:
            raise RequestError(
                Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
        result.model_spec.name = task.model_spec.name
        result.model_spec.signature_name = name
    return response


def metadata(model: Servable, fields: Sequence[str]) -> Message:
    """Answers a GetModelMetadataRequest with a GetModelMetadataResponse without model_spec."""
    if not fields:
        raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
    for name in fields:
        if name != SIGNATURE_FIELD:
            raise invalid(f"Metadata field {name} is not supported")
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.metadata[SIGNATURE_FIELD].Pack(signature_map(model))
    return response


def signature_map(model: Servable) -> Message:
    """Returns the model's signatures as a SignatureDefMap."""
    definitions = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in model.definitions.items():
        definitions.signature_def[name].CopyFrom(definition)
    return definitions


def to_array(name: str, tensor: Message) -> np.ndarray:
    """Returns a TensorProto as an array.

    Raises:
        RequestError: the message is malformed, or claims more elements than it can hold.
    """
    sizes = tensor.tensor_shape.dim
    # The rank is checked first, because the product of very many sizes would take minutes.
    if len(sizes) > _MAX_RANK:
        raise invalid(f'input "{name}" has {len(sizes)} dimensions, more than {_MAX_RANK}')
    if tensor.tensor_shape.unknown_rank or any(dim.size < 0 for dim in sizes):
        raise invalid(f'input "{name}" has no complete shape')
    elements = math.prod(dim.size for dim in sizes)
    # If all values are present, each takes at least a byte.
    if elements > max(_MAX_REPEATED, tensor.ByteSize()):
        raise invalid(f'input "{name}" claims {elements} elements')
    repeated = (elements - len(tensor.string_val)) * len((tensor.string_val or [b""])[-1])
    if repeated > _MAX_REPEATED:
        raise invalid(f'input "{name}" repeats its last string up to {repeated} bytes')
    try:
        return tf.make_ndarray(tensor)
    except Exception as error:  # any error from TensorFlow means a bad message
        raise invalid(f'input "{name}" is not a tensor: {error}') from error


def _examples(message: Message) -> list[bytes]:
    merged = message.example_list_with_context  # empty if the examples have no context
    requests.check_context(merged.context.ByteSize(), len(merged.examples))
    return examples_of(message)


def _classify(model: Servable, spec: Message, message: Message, run: Run, result: Message) -> None:
    signature = requests.example_signature(model, spec.signature_name, CLASSIFY)
    for row in requests.classify(signature, _examples(message), run):
        classes = result.classifications.add().classes
        for label, score in row:
            classes.add(label=label, score=score)


def _regress(model: Servable, spec: Message, message: Message, run: Run, result: Message) -> None:
    signature = requests.example_signature(model, spec.signature_name, REGRESS)
    for value in requests.regress(signature, _examples(message), run):
        result.regressions.add(value=value)


ANSWERS: Mapping[str, Callable[[Servable, Message, Run], Message]] = {
    "predict_log": predict,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}
