"""Exports in int8: a quarter of the space, and products several times as fast on a CPU.

Matrices are rounded to 255 steps per column. In each product the vectors are rounded to 255 steps,
too, by the largest number among them, as in ONNX Runtime's dynamic quantization. TensorFlow's
kernel for this, `_QuantizedMatMul`, is oneDNN's: TensorFlow and TF Serving for x86 have it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.layers import EncoderLayer, RowDense, TokenEmbedding
from keras_transformers.layers.dense import activation_function
from keras_transformers.pipelines.serving.form import ServingForm
from keras_transformers.private_api import quantized_product

INT8_TOLERANCE = 2e-2  # of an export's answers: a number may be rounded to the next step
_STEPS = 127
_LEAST_RANGE = 1e-6  # zeros alone have no range to divide
_FUSED: dict[Any, Literal["Relu", "GeluExact", "GeluApproximate"]] = {
    activation_function("relu"): "Relu",
    activation_function("gelu"): "GeluExact",
    activation_function("gelu_approximate"): "GeluApproximate",
}


class Int8Form(ServingForm):
    """Computes a functional model with int8 in encoder layers and token embeddings.

    Args:
        model: functional, in float32.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(model)
        layers = [layer for layer in model.layers if layer.name in self._joined]
        if not layers:
            raise ValueError(
                f"weights_dtype='int8': model {model.name!r} has no encoder layer in float32, "
                "which is what int8 is for: leave it out"
            )
        tables = [layer for layer in model.layers if isinstance(layer, TokenEmbedding)]
        self._projects = {name: Int8Product(*joined) for name, joined in self._joined.items()}
        self._products = [
            (dense, Int8Product(dense.kernel, dense.bias, dense.activation))
            for each in layers
            for dense in _dense(each)
        ]
        self._tables = {layer.name: Int8Table(layer) for layer in tables}
        quantized = [*self._projects.values(), *(p for _, p in self._products)]
        copies = [v for each in (*quantized, *self._tables.values()) for v in each.variables]
        originals = [w for dense, _ in self._products for w in dense.weights]
        originals += [w for layer in tables for w in layer.weights]
        self._either |= {id(w) for w in (*copies, *originals)}
        self.weights += copies

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        with self._int8():
            return super().__call__(**inputs)

    def _project(self, layer: EncoderLayer) -> Callable[[Any], Any]:
        return self._projects[layer.name]

    def _plain(self, layer: Any) -> Callable[..., Any]:
        table = self._tables.get(layer.name)

        def embed(inputs: Any, *, reverse: bool = False) -> Any:
            return layer(inputs, reverse=True) if reverse else table(inputs)

        return embed if table else layer

    @contextlib.contextmanager
    def _int8(self) -> Iterator[None]:
        for dense, product in self._products:
            dense.product = product
        try:
            yield
        finally:
            for dense, _ in self._products:
                dense.product = None


class Int8Product:
    """Computes `activation(x W + b)` with x and W in int8.

    Args:
        kernel: W, (features, units).
        bias: b, (units,), or None.
        activation: an elementwise function; None for none.

    Attributes:
        variables: W in int8, the largest number in each of its columns, and b.
    """

    def __init__(
        self,
        kernel: keras.Variable,
        bias: keras.Variable | None,
        activation: Callable[[Any], Any] | None = None,
    ) -> None:
        array = kernel.numpy()
        largest = np.maximum(np.abs(array).max(axis=0), _LEAST_RANGE)
        bias = np.zeros_like(largest) if bias is None else bias.numpy()
        arrays = (_rounded(array, largest), largest, bias)
        self.variables = [tf.Variable(each, trainable=False) for each in arrays]
        self._fused = _FUSED.get(activation)
        self._activation = None if self._fused else activation

    def __call__(self, rows: Any) -> Any:
        """Maps rows (rows, features) to (rows, units)."""
        kernel, largest, bias = self.variables
        outputs = quantized_product(rows, kernel, largest, bias, activation=self._fused)
        return outputs if self._activation is None else self._activation(outputs)


class Int8Table:
    """Looks up vectors in int8.

    Args:
        layer: the embedding to replace.

    Attributes:
        variables: the matrix in int8, and the largest number in each of its rows.
    """

    def __init__(self, layer: TokenEmbedding) -> None:
        array = layer.embeddings.numpy()
        largest = np.maximum(np.abs(array).max(axis=1, keepdims=True), _LEAST_RANGE)
        arrays = (_rounded(array, largest), largest * (layer.scale / _STEPS))
        self.variables = [tf.Variable(each, trainable=False) for each in arrays]

    def __call__(self, token_ids: Any) -> Any:
        """Maps ids (batch, length) to vectors (batch, length, width)."""
        table, steps = self.variables
        return tf.cast(tf.gather(table, token_ids), tf.float32) * tf.gather(steps, token_ids)


def _dense(layer: EncoderLayer) -> list[RowDense]:
    """Returns the dense layers that run on rows, without query, key and value."""
    forward = layer.feed_forward
    found = (layer.self_attention.output_projection, forward.intermediate, forward.gate)
    return [dense for dense in (*found, forward.output_projection) if dense is not None]


def _rounded(array: np.ndarray, largest: np.ndarray) -> np.ndarray:
    return np.rint(array / largest * _STEPS).astype(np.int8)
