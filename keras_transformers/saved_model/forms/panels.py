"""The forms of an export in float32: matrices lie as TensorFlow's product reads them.

oneDNN arranges a matrix in panels of columns before it multiplies by it, which takes longer than a
product with few rows, such as one short text or a step of decoding. Here the matrix is in panels
already, and one batched product multiplies the rows by all of them.
"""

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.dependencies.private_api import call_arguments, leave_out_of_checkpoints
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.dense import Function, activation_function
from keras_transformers.saved_model.forms.int8 import quick_gelu
from keras_transformers.saved_model.forms.replaced import ReplacedForm

# Columns of a panel: the fastest of 16, 32 and 64 in decoding, and in short texts.
_DECODING_WIDTH = 32
_SHORT_TEXTS_WIDTH = 64

# With more rows, the product that arranges its matrix is the faster one: it also adds the bias and
# computes the activation.
_FEW_TOKENS = 40


class DecodingForm(ReplacedForm):
    """Computes a functional model that decodes, from stored panels; its answers are the model's.

    Args:
        model: functional.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(model, *_from(partial(_StoredPanels, width=_DECODING_WIDTH)))


class ShortTextsForm(ReplacedForm):
    """Computes a functional model, batches of few tokens from panels.

    The export stores the matrices as they are and arranges them once, when it is loaded.

    Args:
        model: functional, with a padding mask.
    """

    def __init__(self, model: keras.Model) -> None:
        calls = call_arguments(model)
        multiplied = {layer for layer, _, options in calls if options.get("reverse")}
        self._loading = _Loading()
        panels = partial(_LoadedPanels, width=_SHORT_TEXTS_WIDTH, loading=self._loading)
        super().__init__(model, *_from(panels), lambda layer: layer in multiplied)
        self.kernels = {}  # they would multiply any number of rows

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        num_tokens = tf.math.count_nonzero(inputs["padding_mask"])
        return tf.cond(
            num_tokens <= _FEW_TOKENS,
            # With few rows the kernel for norms gains nothing.
            lambda: self._run(inputs, self.replaced),
            lambda: self._run(inputs, self._plain),
        )

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns what to save: the variables that a function reads, and what fills the panels."""
        return [*super().read(variables, functions), *self._loading.tracked()]


class _Panels:
    """A matrix in panels of columns; zeros fill up the last one.

    Args:
        matrix: (features, units), or with `transposed` (units, features).
        width: columns of a panel.

    Attributes:
        units: columns of the matrix.
        variables: those to save.
    """

    def __init__(self, matrix: keras.Variable, width: int, *, transposed: bool = False) -> None:
        self.units, self.width = matrix.shape[0 if transposed else 1], width
        self._matrix, self._transposed = matrix, transposed
        self.variables: list[keras.Variable] = []

    def read(self) -> Tensor:
        """Returns the panels, (panels, features, width)."""
        raise NotImplementedError

    def cut(self) -> Tensor:
        """Cuts the matrix into panels."""
        matrix = tf.convert_to_tensor(self._matrix.value)
        matrix = tf.transpose(matrix) if self._transposed else matrix
        features, count = matrix.shape[0], -(-self.units // self.width)
        padded = tf.pad(matrix, [(0, 0), (0, count * self.width - self.units)])
        return tf.transpose(tf.reshape(padded, (features, count, self.width)), (1, 0, 2))


class _StoredPanels(_Panels):
    """Panels that the export stores in the matrix's place."""

    def __init__(self, matrix: keras.Variable, width: int, *, transposed: bool = False) -> None:
        super().__init__(matrix, width, transposed=transposed)
        self.variables.append(keras.Variable(self.cut(), trainable=False))

    def read(self) -> Tensor:
        """Returns the panels, (panels, features, width)."""
        return keras.ops.convert_to_tensor(self.variables[0])


class _LoadedPanels(_Panels):
    """Panels that are cut when the export is loaded, if a graph reads them.

    Args:
        matrix: (features, units), or with `transposed` (units, features).
        width: columns of a panel.
        loading: what cuts them.
    """

    def __init__(
        self, matrix: keras.Variable, width: int, *, transposed: bool = False, loading: "_Loading"
    ) -> None:
        super().__init__(matrix, width, transposed=transposed)
        self._loading = loading

    def read(self) -> Tensor:
        """Returns the panels, (panels, features, width)."""
        return tf.convert_to_tensor(self._variable)

    @cached_property
    def _variable(self) -> tf.Variable:
        with tf.init_scope():
            variable = tf.Variable(self.cut(), trainable=False)
        self._loading.add(variable, self.cut)
        return variable


class _Loading(tf.saved_model.experimental.TrackableResource):
    """Gives variables that are not saved their values when an export is loaded.

    TensorFlow runs the initializers of its resources then, after it has restored the variables.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: list[tuple[tf.Variable, Callable[[], Tensor]]] = []

    def add(self, variable: tf.Variable, value: Callable[[], Tensor]) -> None:
        """Lets loading set the variable to what `value` returns, and saving leave it out."""
        leave_out_of_checkpoints(variable)
        self._values.append((variable, value))

    def tracked(self) -> list[Any]:
        """Returns what an export must hold: this, and its variables."""
        return [self, *(variable for variable, _ in self._values)] if self._values else []

    def _create_resource(self) -> Any:  # a handle, which TensorFlow asks for; nothing reads it
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="loading")

    def _initialize(self) -> None:
        for variable, value in self._values:
            variable.assign(value())


class _PanelDense:
    """Computes `activation(x W + b)` from W in panels.

    Args:
        panels: W, (features, units).
        bias: b, (units,), or None.
        activation: an elementwise function; None for none.

    Attributes:
        variables: those of the panels.
        structure: see `scopes.KERNELS`.
    """

    def __init__(
        self,
        panels: _Panels,
        bias: keras.Variable | None,
        activation: Function | None = None,
    ) -> None:
        self.variables = panels.variables
        self._panels, self._bias = panels, bias
        is_gelu = activation is activation_function("gelu")
        self._activation = quick_gelu if is_gelu else activation
        self.structure = (type(self), panels.units, panels.width, self._activation)

    def __call__(self, rows: Tensor) -> Tensor:
        """Maps rows (rows, features) to (rows, units)."""
        outputs = _product(rows, self._panels)
        if self._bias is not None:
            outputs = tf.add(outputs, keras.ops.convert_to_tensor(self._bias))
        return outputs if self._activation is None else self._activation(outputs)


class _PanelEmbedding:
    """Computes a `TokenEmbedding` from its transposed matrix in panels.

    Args:
        layer: the embedding.
        panels: of its transposed matrix, (hidden, vocabulary).

    Attributes:
        variables: those of the panels.
    """

    def __init__(self, layer: TokenEmbedding, panels: _Panels) -> None:
        self.variables = panels.variables
        self._panels, self._hidden, self._scale = panels, layer.output_dim, layer.scale

    def __call__(self, inputs: Tensor, *, reverse: bool = False) -> Tensor:
        """Maps ids to vectors, or vectors to logits; see `TokenEmbedding.call`."""
        if reverse:
            logits = _product(tf.reshape(inputs, (-1, self._hidden)), self._panels)
            return tf.reshape(logits, (*keras.ops.shape(inputs)[:-1], self._panels.units))
        ids, width = tf.cast(inputs, tf.int64)[..., None], self._panels.width
        rows = tf.range(self._hidden, dtype=tf.int64)  # of a panel
        places = (ids // width * self._hidden + rows) * width + ids % width
        vectors = tf.gather(tf.reshape(self._panels.read(), [-1]), places)
        return vectors if self._scale == 1.0 else vectors * self._scale


def _from(panels: Callable[..., _Panels]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns what makes a `_PanelDense` and a `_PanelEmbedding`, with panels of this kind."""

    def dense(kernel: keras.Variable, *others: Any) -> _PanelDense:
        return _PanelDense(panels(kernel), *others)

    def table(layer: TokenEmbedding) -> _PanelEmbedding:
        return _PanelEmbedding(layer, panels(layer.embeddings, transposed=True))

    return dense, table


def _product(rows: Tensor, panels: _Panels) -> Tensor:
    """Multiplies rows (rows, features) by a matrix in panels: (rows, units)."""
    read = panels.read()
    products = tf.matmul(rows[None], read)  # (panels, rows, width)
    joined = tf.reshape(tf.transpose(products, (1, 0, 2)), (-1, read.shape[0] * panels.width))
    return joined if joined.shape[1] == panels.units else joined[:, : panels.units]
