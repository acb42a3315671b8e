"""Dense layers that work on rows, and activations with unambiguous names."""

import math
from collections.abc import Callable, MutableMapping
from typing import Literal

import keras
from keras import ops

from keras_transformers.layers.scopes import KERNELS
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["AddBias", "RowDense"]

Activation = Literal[
    "relu",
    "gelu",
    "gelu_approximate",
    "silu",
    "tanh",
    "linear",
    "gelu_clipped",
    "hard_silu",
    "laplace",
    "leaky_relu",
    "mish",
    "quick_gelu",
    "relu6",
    "relu_squared",
    "sigmoid",
    "softplus_root",
]

Function = Callable[[Tensor], Tensor]  # elementwise

# Keras saves this package's objects under this name, as in "keras_transformers>RowDense".
PACKAGE = "keras_transformers"


@keras.saving.register_keras_serializable(PACKAGE)
def gelu(x: Tensor) -> Tensor:
    """Computes the Gaussian error linear unit, `x * Phi(x)`, with erf (Hugging Face's BERT)."""
    return ops.gelu(x, approximate=False)


@keras.saving.register_keras_serializable(PACKAGE)
def gelu_approximate(x: Tensor) -> Tensor:
    """Computes the tanh approximation of the same unit (Google's BERT, GPT, GPT-2)."""
    return ops.gelu(x, approximate=True)


def softmax(scores: Tensor) -> Tensor:
    """Computes the softmax over the last axis, of any size.

    The first step of a search attends to a single position, for which `ops.softmax` would warn.
    """
    if scores.shape[-1] == 1:
        return ops.exp(scores - scores)  # 1, or NaN, as the softmax
    return ops.softmax(scores, axis=-1)


def at_least_float32(dtype: str) -> str:
    """Returns the dtype of scores and logits: float32 for half precision, else the same one.

    -1e9 overflows float16, and sums in bfloat16 drift.
    """
    return "float32" if dtype in ("float16", "bfloat16") else dtype


@keras.saving.register_keras_serializable(PACKAGE)
def gelu_clipped(x: Tensor) -> Tensor:
    """Computes `gelu(x)`, at most 10, for quantization (Wu et al. 2020, arXiv:2004.09602)."""
    return ops.clip(gelu(x), -10.0, 10.0)


@keras.saving.register_keras_serializable(PACKAGE)
def quick_gelu(x: Tensor) -> Tensor:
    """Computes `x * sigmoid(1.702 x)`, the sigmoid approximation of `gelu`."""
    return x * ops.sigmoid(1.702 * x)


@keras.saving.register_keras_serializable(PACKAGE)
def leaky_relu(x: Tensor) -> Tensor:
    """Computes x where it is positive and 0.01 x elsewhere, as in PyTorch; Keras' slope is 0.2."""
    return ops.leaky_relu(x, negative_slope=0.01)


@keras.saving.register_keras_serializable(PACKAGE)
def relu_squared(x: Tensor) -> Tensor:
    """Computes `relu(x) ** 2` (So et al. 2021, "Primer", arXiv:2109.08668)."""
    return ops.square(ops.relu(x))


@keras.saving.register_keras_serializable(PACKAGE)
def laplace(x: Tensor) -> Tensor:
    """Computes a normal distribution's cumulative function (Ma et al. 2022, arXiv:2209.10655)."""
    return 0.5 * (1.0 + ops.erf((x - 0.707107) / (0.282095 * math.sqrt(2.0))))


@keras.saving.register_keras_serializable(PACKAGE)
def softplus_root(x: Tensor) -> Tensor:
    """Computes `sqrt(log(1 + exp(x)))`."""
    return ops.sqrt(ops.softplus(x))


_OURS: dict[str, Function] = {
    "gelu": gelu,
    "gelu_approximate": gelu_approximate,
    "gelu_clipped": gelu_clipped,
    "laplace": laplace,
    "leaky_relu": leaky_relu,
    "quick_gelu": quick_gelu,
    "relu_squared": relu_squared,
    "softplus_root": softplus_root,
}
_KERAS = ("relu", "silu", "tanh", "linear", "hard_silu", "mish", "relu6", "sigmoid")


def activation_function(name: Activation) -> Function:
    """Returns the activation with this name.

    Args:
        name: "relu", "gelu" (erf), "gelu_approximate" (tanh), "silu", "tanh", "linear", or a rarer
            one, such as "quick_gelu".

    Returns:
        An elementwise function on tensors.

    Raises:
        ValueError: the name is unknown.
    """
    if name in _OURS:
        return _OURS[name]
    if name in _KERAS:
        return keras.activations.get(name)
    raise ValueError(
        f"activation={name!r} is unknown: use one of {', '.join([*_OURS, *_KERAS])} "
        "('gelu' is the erf form, 'gelu_approximate' the tanh form)"
    )


@keras.saving.register_keras_serializable(PACKAGE)
class RowDense(keras.layers.Dense):
    """A `keras.layers.Dense` that flattens (..., features) to (rows, features) and back.

    TensorFlow fuses matmul, bias and activation into one kernel only for matrices. On a CPU this
    halves the time of a feed-forward network's forward pass. The results equal `Dense`'s.

    Attributes:
        stores_update: whether files of weights keep a low-rank update beside the matrix, so that
            training can resume; otherwise Keras adds it to the matrix.

    Example:
        >>> RowDense(4)(keras.ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 4])
    """

    stores_update: bool = False

    def save_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        """Writes the layer's variables."""
        if self.stores_update:
            keras.layers.Layer.save_own_variables(self, store)
        else:
            super().save_own_variables(store)

    def load_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        """Reads the layer's variables."""
        if self.stores_update:
            keras.layers.Layer.load_own_variables(self, store)
        else:
            super().load_own_variables(store)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (..., features) to (..., units)."""
        if len(inputs.shape) == 2:
            kernel = KERNELS.of(self)
            return super().call(inputs, training=training) if kernel is None else kernel(inputs)
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))  # (rows, features)
        outputs = self.call(rows, training=training)  # (rows, units)
        return ops.reshape(outputs, (*ops.shape(inputs)[:-1], self.units))


@keras.saving.register_keras_serializable(PACKAGE)
class AddBias(keras.layers.Layer):
    """Adds a trainable bias to the last axis, after a projection with another layer's matrix."""

    def build(self, input_shape: Shape) -> None:
        """Creates the bias, initially zero."""
        self.bias = self.add_weight(name="bias", shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (..., features) to the same shape."""
        return inputs + self.bias

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns `input_shape`."""
        return input_shape
