"""Saves encoders as ONNX, for runtimes other than TensorFlow, without their tokenizers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformers.convert.tensors import in_folder
from keras_transformers.dependencies.extras import needing
from keras_transformers.files import replaced

if TYPE_CHECKING:
    import onnx

__all__ = ["save_onnx"]

_OPSET = 18
_TOLERANCE = 1e-5  # relative to the largest output
_CHECKED_SHAPES = ((1, 3), (2, 8))  # (batch, length)


def save_onnx(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Saves a model as an ONNX file whose outputs in ONNX Runtime equal the model's.

    Inputs and outputs keep their names; batch and length stay variable. The file is written only
    after ONNX Runtime has computed the model's outputs with it, to within 1e-5 of the largest.

    Args:
        model: functional, with named inputs (batch, length) of ids and masks and named outputs,
            such as an encoder with or without a head. Needs the extra `onnx`.
        path: the `.onnx` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        MissingExtraError: the extra is not installed.
        ValueError: an input is not (batch, length), an operation has no counterpart in ONNX, or the
            answers differ.

    Example:
        save_onnx(kt.heads.classifier(encoder, 2), "classifier.onnx")
    """
    path = in_folder(path)
    converted = _converted(model).SerializeToString()
    _check(model, converted, path)
    with replaced(path) as scratch:
        scratch.write_bytes(converted)


def _converted(model: keras.Model) -> "onnx.ModelProto":
    import tensorflow as tf

    with needing("onnx"):
        from tf2onnx import tf_loader, tfonnx

    specs = {name: tf.TensorSpec(_shape(name, x), x.dtype, name) for name, x in _inputs(model)}
    function = tf.function(lambda **inputs: model(inputs, training=False))
    traced = function.get_concrete_function(**specs)
    outputs = {name: tensor.name for name, tensor in traced.structured_outputs.items()}
    inputs = {name: f"{name}:0" for name in specs}
    frozen = tf_loader.from_function(traced, list(inputs.values()), list(outputs.values()))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        try:
            # Without tf2onnx's own optimizers, one of which breaks reshapes of reshapes;
            # runtimes optimize the graph anyway.
            return tfonnx.process_tf_graph(
                graph,
                opset=_OPSET,
                custom_op_handlers={"Erfc": (_erfc, [])},
                input_names=list(inputs.values()),
                output_names=list(outputs.values()),
                tensors_to_rename={
                    tensor: name for name, tensor in [*inputs.items(), *outputs.items()]
                },
                continue_on_error=False,
            ).make_model(model.name)
        except ValueError as error:
            raise ValueError(f"model {model.name!r} has no counterpart in ONNX: {error}") from error


def _inputs(model: keras.Model) -> list[tuple[str, Any]]:
    if not isinstance(model.input, dict) or not isinstance(model.output, dict):
        raise ValueError(f"model {model.name!r} has no named inputs and outputs")
    return list(model.input.items())


def _shape(name: str, tensor: Any) -> tuple[int | None, ...]:
    if len(tensor.shape) != 2:
        raise ValueError(
            f"input {name!r} has the shape {tensor.shape}; only (batch, length) is supported"
        )
    return tuple(tensor.shape)


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Replaces TensorFlow's Erfc, which ONNX lacks, with 1 - Erf."""
    (source,), (target,) = node.input, node.output
    shapes, dtypes = [graph.get_shape(target)], [graph.get_dtype(target)]
    graph.remove_node(name)
    one = graph.make_const(f"{name}_one", np.float32(1.0)).output[0]
    erf = graph.make_node("Erf", [source]).output[0]
    graph.make_node("Sub", [one, erf], outputs=[target], shapes=shapes, dtypes=dtypes, name=name)


def _check(model: keras.Model, converted: bytes, path: Path) -> None:
    """Raises ValueError unless ONNX Runtime computes the same as the model."""
    with needing("onnx"):
        import onnxruntime

    session = onnxruntime.InferenceSession(converted, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for shape in _CHECKED_SHAPES:
        inputs = {name: _trial(tensor.dtype, shape) for name, tensor in _inputs(model)}
        expected = model(inputs, training=False)
        for name, output in zip(names, session.run(None, inputs), strict=True):
            value = keras.ops.convert_to_numpy(expected[name])
            difference = np.abs(output - value).max() / np.abs(value).max()
            if output.shape != value.shape or not difference <= _TOLERANCE:
                raise ValueError(
                    f"{path}: not written, because {name!r} of model {model.name!r} differs by "
                    f"{difference:.1e} of its largest value in ONNX Runtime"
                )


def _trial(dtype: str, shape: tuple[int, int]) -> np.ndarray:
    """Returns an input: tokens 0 and 1, or a mask whose rows end at different places."""
    places = np.arange(shape[0] * shape[1]).reshape(shape)
    if dtype == "bool":
        return places % shape[1] < np.arange(shape[1], shape[1] - shape[0], -1)[:, None]
    return (places % 2).astype(dtype)
