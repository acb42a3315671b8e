"""The form of an export that writes texts: matrices lie as TensorFlow's product reads them.

oneDNN arranges a matrix in panels of columns before it multiplies by it, which takes longer than a
product with the few rows of a step. Here the panels are what is stored, and one batched product
multiplies the rows by all of them.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.dense import activation_function
from keras_transformers.pipelines.exported.int8 import quick_gelu
from keras_transformers.pipelines.exported.replaced import ReplacedForm

_WIDTH = 32  # columns of a panel
_WIDE = 64  # units of the narrowest layer that gains anything


class PanelForm(ReplacedForm):
    """Computes a functional model from matrices in panels; its answers are the model's.

    Args:
        model: functional.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(model, least_units=_WIDE)

    def dense(self, kernel: Any, bias: Any, activation: Any = None) -> "PanelDense":
        """Returns what computes `activation(x W + b)` for rows."""
        return PanelDense(kernel, bias, activation)

    def table(self, layer: TokenEmbedding) -> "PanelEmbedding":
        """Returns what computes a `TokenEmbedding`."""
        return PanelEmbedding(layer)


class PanelDense:
    """Computes `activation(x W + b)` from W in panels.

    Args:
        kernel: W, (features, units).
        bias: b, (units,), or None.
        activation: an elementwise function; None for none.

    Attributes:
        variables: the panels (panels, features, width), and b if there is one.
    """

    def __init__(
        self,
        kernel: keras.Variable,
        bias: keras.Variable | None,
        activation: Callable[[Any], Any] | None = None,
    ) -> None:
        self.variables = [_panels(keras.ops.convert_to_numpy(kernel))]
        if bias is not None:
            self.variables.append(keras.Variable(bias, trainable=False))
        self._units = kernel.shape[1]
        is_gelu = activation is activation_function("gelu")
        self._activation = quick_gelu if is_gelu else activation

    def __call__(self, rows: Any) -> Any:
        """Maps rows (rows, features) to (rows, units)."""
        panels, *biases = self.variables
        outputs = _product(rows, panels, self._units)
        for bias in biases:
            outputs = tf.add(outputs, keras.ops.convert_to_tensor(bias))
        return outputs if self._activation is None else self._activation(outputs)


class PanelEmbedding:
    """Computes a `TokenEmbedding` from its transposed matrix in panels.

    Args:
        layer: the embedding.

    Attributes:
        variables: the panels (panels, hidden, width) of the (hidden, vocabulary) matrix.
    """

    def __init__(self, layer: TokenEmbedding) -> None:
        self.variables = [_panels(keras.ops.convert_to_numpy(layer.embeddings).T)]
        self._size, self._width, self._scale = layer.input_dim, layer.output_dim, layer.scale

    def __call__(self, inputs: Any, *, reverse: bool = False) -> Any:
        """Maps ids to vectors, or vectors to logits; see `TokenEmbedding.call`."""
        (panels,) = self.variables
        if reverse:
            logits = _product(tf.reshape(inputs, (-1, self._width)), panels, self._size)
            return tf.reshape(logits, (*keras.ops.shape(inputs)[:-1], self._size))
        ids = tf.cast(inputs, tf.int64)[..., None]
        rows = tf.range(self._width, dtype=tf.int64)  # of a panel
        places = (ids // _WIDTH * self._width + rows) * _WIDTH + ids % _WIDTH
        vectors = tf.gather(tf.reshape(keras.ops.convert_to_tensor(panels), [-1]), places)
        return vectors if self._scale == 1.0 else vectors * self._scale


def _panels(matrix: np.ndarray) -> keras.Variable:
    """Cuts (features, units) into (panels, features, width); zeros fill up the last panel."""
    features, units = matrix.shape
    count = -(-units // _WIDTH)
    padded = np.pad(matrix, [(0, 0), (0, count * _WIDTH - units)])
    cut = padded.reshape(features, count, _WIDTH).transpose(1, 0, 2)
    return keras.Variable(np.ascontiguousarray(cut), trainable=False)


def _product(rows: Any, panels: keras.Variable, units: int) -> Any:
    """Multiplies rows (rows, features) by a matrix in panels: (rows, units)."""
    products = tf.matmul(rows[None], keras.ops.convert_to_tensor(panels))  # (panels, rows, width)
    joined = tf.reshape(tf.transpose(products, (1, 0, 2)), (-1, panels.shape[0] * _WIDTH))
    return joined if joined.shape[1] == units else joined[:, :units]
