"""Checks and runs requests, for REST and gRPC.

The error messages follow TF Serving's predict_util.cc, classifier.cc and regressor.cc.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.signatures import (
    DEFAULT_SIGNATURE,
    Arrays,
    Servable,
    SignatureInfo,
)

CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME

_MAX_CONTEXTS = 64 * 1024 * 1024  # bytes

# Runs a signature, possibly in a batch with rows of other requests.
Run = Callable[[SignatureInfo, Arrays], dict[str, np.ndarray]]


def predict(
    signature: SignatureInfo, inputs: Arrays, run: Run, *, output_filter: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Answers a Predict request.

    Args:
        signature: the signature that the request names.
        inputs: name -> array.
        run: runs the signature.
        output_filter: the outputs to return; all by default.

    Raises:
        RequestError: names, dtypes or shapes do not fit the signature, or `run` fails.
    """
    check_inputs(signature, inputs)
    for name in output_filter:
        if name not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {name} Outputs expected to be in the "
                f"set {{{','.join(signature.outputs)}}}."
            )
    if len(set(output_filter)) != len(output_filter):
        raise invalid(f"duplicate output tensor alias: {','.join(output_filter)}")
    outputs = run(signature, inputs)
    return {name: outputs[name] for name in output_filter or sorted(outputs)}


def predict_signature(model: Servable, name: str) -> SignatureInfo:
    """Returns the signature of a Predict request, with any method.

    Raises:
        RequestError: no signature has that name.
    """
    signature = model.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise RequestError(
            Code.FAILED_PRECONDITION,
            f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.',
        )
    return signature


def example_signature(model: Servable, name: str, method_name: str) -> SignatureInfo:
    """Returns the signature of a Classify or Regress request.

    Raises:
        RequestError: no signature has that name, or its method or inputs do not fit.
    """
    kind = "classification" if method_name == CLASSIFY else "regression"
    signature = model.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}")
    if signature.method_name != method_name:
        raise invalid(
            f"Expected {kind} signature method_name to be {method_name}. "
            f"Was: {signature.method_name}"
        )
    if set(signature.inputs) != {tf.saved_model.CLASSIFY_INPUTS}:  # same as REGRESS_INPUTS
        raise RequestError(
            Code.FAILED_PRECONDITION, f"No {kind} inputs found in SignatureDef: {signature.name}"
        )
    return signature


def classify(
    signature: SignatureInfo, examples: Sequence[bytes], run: Run
) -> list[list[tuple[str, float]]]:
    """Answers a Classify request.

    Args:
        signature: from `example_signature`.
        examples: serialized tf.train.Example protocol buffers.
        run: runs the signature.

    Returns:
        For each example the (label, score) of each class. The label is empty, or the score 0,
        if the model does not return it.

    Raises:
        RequestError: there are no examples, or the outputs do not have a classification's shape.
    """
    outputs = _run_examples(signature, examples, run, "ClassificationRequest")
    classes = outputs.get(tf.saved_model.CLASSIFY_OUTPUT_CLASSES)
    scores = outputs.get(tf.saved_model.CLASSIFY_OUTPUT_SCORES)
    arrays = [array for array in (classes, scores) if array is not None]
    if not arrays:
        raise RequestError(
            Code.FAILED_PRECONDITION,
            'Expected classification signature outputs to contain at least one of "classes" or '
            '"scores".',
        )
    for array in arrays:
        if array.ndim != 2 or array.shape != (len(examples), arrays[0].shape[1]):
            raise invalid(
                f"Expected Tensor shape: [{len(examples)} num_classes] but got {list(array.shape)}"
            )
    labels = np.full(arrays[0].shape, b"", object) if classes is None else classes
    values = np.zeros(arrays[0].shape) if scores is None else scores
    return [
        [
            (label.decode("utf-8", "replace"), float(score))
            for label, score in zip(*row, strict=True)
        ]
        for row in zip(labels, values, strict=True)
    ]


def regress(signature: SignatureInfo, examples: Sequence[bytes], run: Run) -> list[float]:
    """Answers a Regress request with one value per example; see `classify`."""
    outputs = _run_examples(signature, examples, run, "RegressionRequest")
    values = outputs.get(tf.saved_model.REGRESS_OUTPUTS)
    if values is None:
        raise RequestError(
            Code.FAILED_PRECONDITION, 'Expected regression signature outputs to contain "outputs".'
        )
    if values.shape not in ((len(examples),), (len(examples), 1)):
        raise invalid(
            f"Expected output Tensor shape to be either [{len(examples)}] or [{len(examples)}, 1] "
            f"but got {list(values.shape)}"
        )
    return [float(value) for value in values.reshape(-1)]


def check_context(context: int, count: int) -> None:
    """Checks how large a request's examples become with its context, which is merged into each.

    Args:
        context: the size of the context in bytes.
        count: the number of examples.

    Raises:
        RequestError: they become so much larger than the request that they may crash the server.
    """
    if context * count > _MAX_CONTEXTS:
        raise invalid(
            f"the context of {count} examples takes {context * count} bytes, more than "
            f"{_MAX_CONTEXTS}: split the request"
        )


def check_inputs(signature: SignatureInfo, inputs: Arrays) -> None:
    """Checks that the inputs of a Predict request are those of its signature.

    Raises:
        RequestError: names, dtypes or shapes do not fit.
    """
    check_names(signature, inputs)
    for name, array in inputs.items():
        _check_array(signature, name, array)


def check_names(signature: SignatureInfo, names: Iterable[str]) -> None:
    """Checks that a request has the inputs of its signature.

    Raises:
        RequestError: an input is missing or unknown.
    """
    names, wanted = set(names), set(signature.inputs)
    if names != wanted:
        raise invalid(
            f"input size does not match signature: {len(names)}!={len(wanted)} "
            f"len({{{_names(names)}}}) != len({{{_names(wanted)}}}). "
            f"Sent extra: {{{_names(names - wanted)}}}. "
            f"Missing but required: {{{_names(wanted - names)}}}."
        )


def rows_of(inputs: Arrays) -> int | None:
    """Returns the first dimension of all inputs; None if they do not share one."""
    rows = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return rows.pop() if len(rows) == 1 else None


def _run_examples(
    signature: SignatureInfo, examples: Sequence[bytes], run: Run, message: str
) -> Mapping[str, Any]:
    if not examples:
        raise invalid(f"{message}::input is empty.")
    column = np.empty(len(examples), object)
    column[:] = examples
    return predict(signature, {tf.saved_model.CLASSIFY_INPUTS: column}, run)


def _names(names: set[str]) -> str:
    return ",".join(sorted(names))[:200]


def _check_array(signature: SignatureInfo, name: str, array: np.ndarray) -> None:
    info = signature.inputs[name]
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    if dtype != info.dtype:
        raise invalid(f'input "{name}" is of type {dtype.name}, expected {info.dtype.name}')
    if info.shape is None:
        return
    if len(info.shape) != array.ndim or any(
        wanted is not None and wanted != size
        for wanted, size in zip(info.shape, array.shape, strict=True)
    ):
        wanted = ",".join("?" if size is None else str(size) for size in info.shape)
        sizes = ",".join(str(size) for size in array.shape)
        raise invalid(f'input "{name}" is of shape [{sizes}], expected [{wanted}]')
