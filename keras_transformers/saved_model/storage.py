"""Stores an export's weights unchanged, or its matrices in half the space."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

import keras
import tensorflow as tf

from keras_transformers.dependencies.untyped import Tensor

Outputs = Mapping[str, Tensor]
WeightsDtype = Literal["float32", "bfloat16", "int8"]


def stored_value(variable: keras.Variable, weights_dtype: WeightsDtype) -> Tensor:
    """Returns the value of a weight after it was stored: rounded, if it is stored in bfloat16."""
    value = tf.convert_to_tensor(variable.value)
    if _is_halved(variable, weights_dtype):
        return tf.cast(tf.cast(value, tf.bfloat16), tf.float32)
    return value


def _is_halved(variable: keras.Variable | tf.Variable, weights_dtype: WeightsDtype) -> bool:
    """Returns whether an export stores a variable in bfloat16."""
    is_matrix = isinstance(variable, keras.Variable) and len(variable.shape) > 1
    return weights_dtype == "bfloat16" and is_matrix and tf.as_dtype(variable.dtype) == tf.float32


class StoredWeights:
    """Holds the variables of an export, and makes functions read them.

    With "bfloat16", every float32 matrix is stored in bfloat16, rounded to 8 bits of mantissa, and
    cast back to float32 once per call, before any loop. The computation stays in float32; norms and
    biases, which are small, stay exact.

    Args:
        variables: the model's variables.
        weights_dtype: "float32" stores them unchanged; "bfloat16" halves the matrices' space;
            "int8" also stores them unchanged, because those of an `Int8Form` are already small.

    Raises:
        ValueError: `weights_dtype` is none of these.

    Attributes:
        variables: the TensorFlow variables to save.
    """

    def __init__(
        self,
        variables: Iterable[keras.Variable | tf.Variable],
        weights_dtype: WeightsDtype = "float32",
    ) -> None:
        if weights_dtype not in get_args(WeightsDtype):
            raise ValueError(
                f"weights_dtype={weights_dtype!r}: use 'float32', 'bfloat16' or 'int8'"
            )
        self._halved: list[tuple[keras.Variable, tf.Variable]] = []
        self._read: set[int] = set()  # indices of those in `_halved` that a function reads
        self.variables: list[tf.Variable] = []
        for variable in variables:
            kept = variable.value if isinstance(variable, keras.Variable) else variable
            if _is_halved(variable, weights_dtype):
                kept = tf.Variable(tf.cast(kept, tf.bfloat16), trainable=False)
                self._halved.append((variable, kept))
            self.variables.append(kept)

    def reading(self, function: Callable[..., Outputs]) -> Callable[..., Outputs]:
        """Returns the function with the stored weights instead of the model's."""
        if not self._halved:
            return function

        @functools.wraps(function)
        def read(*args: Tensor, **inputs: Tensor) -> Outputs:
            values = [(variable, tf.cast(half, tf.float32)) for variable, half in self._halved]
            with keras.StatelessScope(state_mapping=values):
                outputs = function(*args, **inputs)
            if not tf.executing_eagerly():
                self._read |= {i for i, (_, value) in enumerate(values) if value.consumers()}
            return outputs

        return read

    def forget_unread(self) -> bool:
        """Leaves out the weights that no traced function has read; returns whether there were any.

        Functions traced before still cast, and so capture, those weights: trace them again.
        """
        num_halved = len(self._halved)
        self._halved = [pair for i, pair in enumerate(self._halved) if i in self._read]
        self._read = set()
        return len(self._halved) < num_halved
