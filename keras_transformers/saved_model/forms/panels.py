"""The forms of an export in float32: matrices lie as TensorFlow's product reads them.

oneDNN arranges a matrix in panels of columns before it multiplies by it, which takes longer than a
product with few rows, such as one short text or a step of decoding. Here the matrix is in panels
already, and one batched product multiplies the rows by all of them.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.dependencies.private_api import call_arguments, leave_out_of_checkpoints
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.dense import activation_function
from keras_transformers.saved_model.forms.form import ExportForm
from keras_transformers.saved_model.forms.int8 import quick_gelu
from keras_transformers.saved_model.forms.replaced import ReplacedForm

_WIDE = 64  # units of the narrowest layer that gains anything

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
        super().__init__(model, least_units=_WIDE)

    def dense(self, kernel: Any, bias: Any, activation: Any = None) -> "_PanelDense":
        """Returns what computes `activation(x W + b)` for rows."""
        return _PanelDense(_StoredPanels(kernel, _DECODING_WIDTH), bias, activation)

    def table(self, layer: TokenEmbedding) -> "_PanelEmbedding":
        """Returns what computes a `TokenEmbedding`."""
        panels = _StoredPanels(layer.embeddings, _DECODING_WIDTH, transposed=True)
        return _PanelEmbedding(layer, panels)


class ShortTextsForm(ReplacedForm):
    """Computes a functional model, batches of few tokens from panels.

    The export stores the matrices as they are and arranges them once, when it is loaded.

    Args:
        model: functional, with a padding mask.
    """

    def __init__(self, model: keras.Model) -> None:
        calls = call_arguments(model)
        self._reversed = {id(layer) for layer, _, options in calls if options.get("reverse")}
        self._loading = _Loading()
        super().__init__(model, least_units=_WIDE)

    def dense(self, kernel: Any, bias: Any, activation: Any = None) -> "_PanelDense":
        """Returns what computes `activation(x W + b)` for rows."""
        panels = _LoadedPanels(kernel, _SHORT_TEXTS_WIDTH, loading=self._loading)
        return _PanelDense(panels, bias, activation)

    def table(self, layer: TokenEmbedding) -> "_PanelEmbedding":
        """Returns what computes a `TokenEmbedding`."""
        panels = _LoadedPanels(
            layer.embeddings, _SHORT_TEXTS_WIDTH, transposed=True, loading=self._loading
        )
        return _PanelEmbedding(layer, panels)

    def replaces(self, layer: TokenEmbedding) -> bool:
        """Returns whether the embedding's matrix is multiplied by, too."""
        return id(layer) in self._reversed

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        num_tokens = tf.math.count_nonzero(inputs["padding_mask"])
        return tf.cond(
            num_tokens <= _FEW_TOKENS,
            lambda: self._few(inputs),
            lambda: ExportForm.__call__(self, **inputs),
        )

    def _few(self, inputs: dict[str, Any]) -> dict[str, Any]:
        with self._replacing():  # with few rows the kernel for norms gains nothing
            return self._run(inputs)

    def in_place(self) -> contextlib.AbstractContextManager[None]:
        """Leaves the model's own layers as they are, outside of `__call__`."""
        return ExportForm.in_place(self)

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns what to save: no originals or copies that no function reads."""
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

    def read(self) -> Any:
        """Returns the panels, (panels, features, width)."""
        raise NotImplementedError

    def cut(self) -> Any:
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

    def read(self) -> Any:
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

    def read(self) -> Any:
        """Returns the panels, (panels, features, width)."""
        return tf.convert_to_tensor(self._variable)

    @functools.cached_property
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
        self._made: list[tuple[tf.Variable, Callable[[], Any]]] = []

    def add(self, variable: tf.Variable, make: Callable[[], Any]) -> None:
        """Lets loading set the variable to what `make` returns, and saving leave it out."""
        leave_out_of_checkpoints(variable)
        self._made.append((variable, make))

    def tracked(self) -> list[Any]:
        """Returns what an export must hold: this, and its variables."""
        return [self, *(variable for variable, _ in self._made)] if self._made else []

    def _create_resource(self) -> Any:  # a handle, which TensorFlow asks for; nothing reads it
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="loading")

    def _initialize(self) -> None:
        for variable, make in self._made:
            variable.assign(make())


class _PanelDense:
    """Computes `activation(x W + b)` from W in panels.

    Args:
        panels: W, (features, units).
        bias: b, (units,), or None.
        activation: an elementwise function; None for none.

    Attributes:
        variables: those of the panels.
    """

    def __init__(
        self,
        panels: _Panels,
        bias: keras.Variable | None,
        activation: Callable[[Any], Any] | None = None,
    ) -> None:
        self.variables = panels.variables
        self._panels, self._bias = panels, bias
        is_gelu = activation is activation_function("gelu")
        self._activation = quick_gelu if is_gelu else activation

    def __call__(self, rows: Any) -> Any:
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

    def __call__(self, inputs: Any, *, reverse: bool = False) -> Any:
        """Maps ids to vectors, or vectors to logits; see `TokenEmbedding.call`."""
        if reverse:
            logits = _product(tf.reshape(inputs, (-1, self._hidden)), self._panels)
            return tf.reshape(logits, (*keras.ops.shape(inputs)[:-1], self._panels.units))
        ids, width = tf.cast(inputs, tf.int64)[..., None], self._panels.width
        rows = tf.range(self._hidden, dtype=tf.int64)  # of a panel
        places = (ids // width * self._hidden + rows) * width + ids % width
        vectors = tf.gather(tf.reshape(self._panels.read(), [-1]), places)
        return vectors if self._scale == 1.0 else vectors * self._scale


def _product(rows: Any, panels: _Panels) -> Any:
    """Multiplies rows (rows, features) by a matrix in panels: (rows, units)."""
    read = panels.read()
    products = tf.matmul(rows[None], read)  # (panels, rows, width)
    joined = tf.reshape(tf.transpose(products, (1, 0, 2)), (-1, read.shape[0] * panels.width))
    return joined if joined.shape[1] == panels.units else joined[:, : panels.units]
