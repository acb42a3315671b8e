"""TF Serving's messages, answered by a loaded SavedModel: what gRPC takes and warm-up records hold.

Each function takes the model, the request and what runs a signature; it raises RequestError.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from keras_transformers.serving import requests
from keras_transformers.serving.errors import Code, RequestError, invalid
from keras_transformers.serving.requests import CLASSIFY, REGRESS, Run
from keras_transformers.serving.saved_models import DEFAULT_SIGNATURE, SavedModel

SIGNATURE_FIELD = "signature_def"

# A tensor may claim any shape with fewer values, the last of which then repeats.
_MAX_REPEATED = 1_000_000


def predict(model: SavedModel, request: Any, run: Run) -> Any:
    """PredictRequest -> PredictResponse."""
    signature = requests.predict_signature(model, request.model_spec.signature_name)
    inputs = {name: to_array(name, tensor) for name, tensor in request.inputs.items()}
    outputs = requests.predict(signature, inputs, run, output_filter=list(request.output_filter))
    response = predict_pb2.PredictResponse()
    for name, array in outputs.items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(array, signature.outputs[name].dtype))
    response.model_spec.signature_name = signature.name
    return response


def classify(model: SavedModel, request: Any, run: Run) -> Any:
    """ClassificationRequest -> ClassificationResponse."""
    response = classification_pb2.ClassificationResponse()
    _classify(model, request.model_spec, request.input, run, response.result)
    response.model_spec.signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    return response


def regress(model: SavedModel, request: Any, run: Run) -> Any:
    """RegressionRequest -> RegressionResponse."""
    response = regression_pb2.RegressionResponse()
    _regress(model, request.model_spec, request.input, run, response.result)
    response.model_spec.signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    return response


def multi_inference(model: SavedModel, request: Any, run: Run) -> Any:
    """MultiInferenceRequest -> MultiInferenceResponse."""
    names = [task.model_spec.signature_name or DEFAULT_SIGNATURE for task in request.tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise invalid(f"Duplicate evaluation of signature: {twice[0]}")
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


def metadata(model: SavedModel, fields: Sequence[str]) -> Any:
    """GetModelMetadataRequest -> GetModelMetadataResponse, without its model_spec."""
    if not fields:
        raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
    for name in fields:
        if name != SIGNATURE_FIELD:
            raise invalid(f"Metadata field {name} is not supported")
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.metadata[SIGNATURE_FIELD].Pack(signature_map(model))
    return response


def signature_map(model: SavedModel) -> Any:
    """The model's signatures as a SignatureDefMap."""
    found = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in model.definitions.items():
        found.signature_def[name].CopyFrom(definition)
    return found


def examples_of(message: Any) -> list[bytes]:
    """The serialized examples of an Input; what its context holds is in each of them."""
    if message.WhichOneof("kind") == "example_list_with_context":
        with_context = message.example_list_with_context
        # Serialized messages that follow each other merge when they are parsed, and the later wins.
        context = with_context.context.SerializeToString()
        return [context + example.SerializeToString() for example in with_context.examples]
    return [example.SerializeToString() for example in message.example_list.examples]


def to_array(name: str, tensor: Any) -> np.ndarray:
    """A TensorProto as an array.

    Raises:
        RequestError: the message is malformed, or claims more elements than it can hold.
    """
    if tensor.tensor_shape.unknown_rank or any(dim.size < 0 for dim in tensor.tensor_shape.dim):
        raise invalid(f'input "{name}" has no complete shape')
    elements = int(np.prod([dim.size for dim in tensor.tensor_shape.dim], dtype=object))
    # Values that are all there take a byte each at least.
    if elements > max(_MAX_REPEATED, tensor.ByteSize()) or len(tensor.tensor_shape.dim) > 16:
        raise invalid(f'input "{name}" claims {elements} elements')
    try:
        return tf.make_ndarray(tensor)
    except Exception as error:  # whatever numpy makes of it, the message is wrong
        raise invalid(f'input "{name}" is no tensor: {error}') from error


def _classify(model: SavedModel, spec: Any, message: Any, run: Run, result: Any) -> None:
    signature = requests.example_signature(model, spec.signature_name, CLASSIFY)
    for row in requests.classify(signature, examples_of(message), run):
        classes = result.classifications.add().classes
        for label, score in row:
            classes.add(label=label, score=score)


def _regress(model: SavedModel, spec: Any, message: Any, run: Run, result: Any) -> None:
    signature = requests.example_signature(model, spec.signature_name, REGRESS)
    for value in requests.regress(signature, examples_of(message), run):
        result.regressions.add(value=value)


ANSWERS: Mapping[str, Any] = {
    "predict_log": predict,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}
