"""The form of an export in int8: about a quarter of the space, and half the time or less on a CPU.

Every number of a matrix becomes one of 255 multiples of a step, and each column has its own step.
The vectors that a matrix multiplies are rounded in the same way when the export runs, each by its
own step: the answer to a text does not depend on the texts beside it. The products are computed in
integers; everything between them stays in float32.

Processors without VNNI add the products of two neighbouring features in 16 bits. The vectors'
numbers are shifted to 1 to 255 there, so the sum fits if the two weights add up to 128 at most.
Steps are wide enough for that, 1.2 to 1.3 times those that a column's largest weight alone needs:
seven bits for all would take 2. So sums are exact on every processor.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.dependencies.private_api import int8_product
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import FeedForward, TokenEmbedding
from keras_transformers.layers.dense import Function, activation_function
from keras_transformers.saved_model.forms.form import every_layer
from keras_transformers.saved_model.forms.replaced import WIDE, ReplacedForm

_STEPS = 127
_ROOT_OF_HALF = np.float32(np.sqrt(0.5))
_LEAST = 1e-6  # stands for the largest number of a column of zeros


class Int8Form(ReplacedForm):
    """Computes a functional model with int8 in its dense layers and token embeddings.

    Its answers are near the model's own, but not the same: measure them on your own data.

    Args:
        model: functional, with a `RowDense` of 64 units or more in float32, as Transformers have,
            or only token embeddings, as static vectors; other layers run as they are.

    Raises:
        ValueError: the model has no such layer.
        RuntimeError: this TensorFlow cannot multiply in int8.
    """

    matrices = "in int8 for oneDNN; fastest with VNNI"

    def __init__(self, model: keras.Model) -> None:
        super().__init__(model, Int8Dense, Int8Embedding)
        if not self.replaced:
            raise ValueError(
                f"weights_dtype='int8' is for models with dense layers of {WIDE} units or more in "
                f"float32, and {model.name!r} has none: take 'bfloat16' or 'float32'"
            )
        if self.num_dense:
            _check_kernel()
        for layer in _plain_gelus(model):
            if layer.intermediate in self.replaced and layer.output_projection in self.replaced:
                following = self.replaced[layer.output_projection]
                self.replaced[layer.intermediate].move_scale_to(following)


class Int8Dense:
    """Computes `activation(x W + b)` with x and W in int8.

    Args:
        kernel: W, (features, units).
        bias: b, (units,), or None.
        activation: an elementwise function; None for none.

    Attributes:
        variables: W in int8, 127 steps of each of its columns, and b if there is one.
    """

    def __init__(
        self,
        kernel: keras.Variable,
        bias: keras.Variable | None,
        activation: Function | None = None,
    ) -> None:
        self.variables = list(_rounded(kernel.numpy(), axis=0))
        if bias is not None:
            self.variables.append(tf.Variable(bias.numpy(), trainable=False))
        self._activation = _QUICK.get(activation, activation)

    def move_scale_to(self, following: "Int8Dense") -> None:
        """Leaves the constants of this layer's `gelu` to its own matrix and the following one.

        With u = x / sqrt(2), `gelu(x)` is u (1 + erf(u)) / sqrt(2): the scales of the two matrices
        take the constants, which saves two passes over the widest vectors of a block.
        """
        for scaled in (*self.variables[1:], following.variables[1]):
            scaled.assign(scaled * _ROOT_OF_HALF)
        self._activation = _scaled_gelu

    def __call__(self, rows: Tensor) -> Tensor:
        """Maps rows (rows, features) to (rows, units)."""
        matrix, largest, *biases = self.variables
        outputs = _product(rows, matrix, largest)
        for bias in biases:
            outputs = tf.nn.bias_add(outputs, bias)
        return outputs if self._activation is None else self._activation(outputs)


class Int8Embedding:
    """Computes a `TokenEmbedding` from a table in int8.

    Args:
        layer: the embedding.

    Attributes:
        variables: the table in int8, and 127 steps of each of its rows.
    """

    def __init__(self, layer: TokenEmbedding) -> None:
        self.variables = list(_rounded(layer.embeddings.numpy(), axis=1))
        self._step = layer.scale / _STEPS

    def __call__(self, inputs: Tensor, *, reverse: bool = False) -> Tensor:
        """Maps ids to vectors, or vectors to logits; see `TokenEmbedding.call`."""
        # Read, not as variables: gathering from a variable makes each later read of it a copy.
        table, largest = (tf.convert_to_tensor(variable) for variable in self.variables)
        if not reverse:
            steps = tf.gather(largest, inputs)[..., None] * self._step  # (batch, length, 1)
            return tf.cast(tf.gather(table, inputs), tf.float32) * steps
        rows = tf.reshape(inputs, (-1, inputs.shape[-1]))  # (rows, hidden)
        logits = _product(rows, table, largest, transpose=True)  # (rows, vocabulary)
        return tf.reshape(logits, (*keras.ops.shape(inputs)[:-1], table.shape[0]))


def _product(rows: Tensor, matrix: Tensor, largest: Tensor, *, transpose: bool = False) -> Tensor:
    """Multiplies rows (rows, features), each rounded by its own largest number, by a matrix."""
    largest_of_row = tf.reduce_max(rows, axis=1, keepdims=True)  # (rows, 1)
    smallest_of_row = tf.reduce_min(rows, axis=1, keepdims=True)
    limits = tf.maximum(largest_of_row, -smallest_of_row)  # takes less time than max(abs(rows))
    rounded = tf.cast(tf.round(rows * tf.math.divide_no_nan(float(_STEPS), limits)), tf.int8)
    return int8_product(rounded, matrix, largest, transpose=transpose) * limits


def _rounded(array: np.ndarray, *, axis: int) -> tuple[tf.Variable, tf.Variable]:
    """Returns a matrix in int8, and what 127 stands for along the axis.

    That is the largest number, or the largest sum of an even-numbered one and the next.
    """
    firsts = np.arange(0, array.shape[axis], 2)
    sums = np.add.reduceat(array, firsts, axis=axis)
    largest = np.maximum(*(np.abs(x).max(axis=axis, keepdims=True) for x in (array, sums)))
    largest = np.maximum(largest, _LEAST)
    rounded = np.rint(array / largest * _STEPS).astype(np.int8)
    return tuple(tf.Variable(x, trainable=False) for x in (rounded, largest.reshape(-1)))


def quick_gelu(x: Tensor) -> Tensor:
    """`gelu` by erf: TensorFlow's takes erfc, which needs twice the time."""
    return 0.5 * x * (1.0 + tf.math.erf(x * _ROOT_OF_HALF))


def _scaled_gelu(x: Tensor) -> Tensor:
    return x * (1.0 + tf.math.erf(x))


def _plain_gelus(model: keras.Model) -> list[FeedForward]:
    """Returns the feed-forward layers with `gelu` between two matrices and nothing else."""
    return [
        layer
        for layer in every_layer(model)
        if isinstance(layer, FeedForward) and layer.gate is None and layer.activation == "gelu"
    ]


_QUICK: dict[Function | None, Function] = {activation_function("gelu"): quick_gelu}


def _check_kernel() -> None:
    """Raises RuntimeError if TensorFlow cannot multiply in int8 here."""
    rows = np.arange(4 * 64).reshape(4, 64) * 37 % 255 - 127
    rows[:, 0] = rows[0] = 127  # the largest, so rounding changes nothing
    numbers = np.arange(64 * 8).reshape(64, 8) * 91 % 255 - 127
    numbers[:, 0] = 1  # with the first row: the largest sums of two products
    matrix, largest = _rounded(numbers.astype(np.float32), axis=0)
    right = rows @ (matrix.numpy() * largest.numpy() / _STEPS)

    @tf.function(autograph=False)
    def multiply() -> Tensor:
        return _product(tf.constant(rows, tf.float32), matrix, largest)

    try:
        product = multiply().numpy()
    except (tf.errors.OpError, ValueError) as error:
        reason = graph_errors.sentence(str(error)).partition("\n")[0]
        raise RuntimeError(
            "weights_dtype='int8' needs TensorFlow's int8 kernels (oneDNN), which its builds for "
            f"x86 on Linux have, and this one lacks: {reason}. Export there, or "
            "take weights_dtype='bfloat16'"
        ) from error
    wrong = np.argwhere(~np.isclose(product, right, rtol=1e-4, atol=1.0))
    if len(wrong):
        place = tuple(wrong[0])
        raise RuntimeError(
            f"weights_dtype='int8': TensorFlow's int8 product gives {product[place]} where "
            f"{right[place]} is right, on this processor: export on another kind, or take "
            "weights_dtype='bfloat16'"
        )
