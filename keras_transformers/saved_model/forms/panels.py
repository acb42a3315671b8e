"""The forms of an export in float32: matrices lie as TensorFlow's product reads them.

oneDNN arranges a matrix in panels of columns before it multiplies by it, which takes longer than a
product with few rows, such as one short text or a step of decoding. Here the matrix is in panels
already, and one batched product multiplies the rows by all of them. Where TensorFlow computes
products without oneDNN, as on processors with AVX2 alone, panels are slow for more than one row,
and the whole matrix is one panel, but in language models, whose chats have one row. Loading an
export decides, not making it.
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
from keras_transformers.saved_model.forms.form import every_layer
from keras_transformers.saved_model.forms.int8 import quick_gelu
from keras_transformers.saved_model.forms.norms import fused_norms, short_norm
from keras_transformers.saved_model.forms.replaced import ReplacedForm

# Columns of a panel: the fastest of 16, 32 and 64 in decoding, and in short texts.
_DECODING_WIDTH = 32
_SHORT_TEXTS_WIDTH = 64

# With more rows, oneDNN's product that arranges its matrix is the faster one: it also adds the bias
# and computes the activation.
_FEW_TOKENS = 40

# Rows of a matrix whose distance is a multiple of half a page share a few places in the cache, and
# the product takes up to twice as long.
_CROWDED = 512  # columns: 2,048 bytes
_APART = 16  # more columns: 64 bytes, a line of the cache

_ARRANGED = "arranged on loading, for the processor that does"
_FOR_ONE_ROW = "in panels, for one text; slower without oneDNN for several, as with AVX2 alone"


class DecodingForm(ReplacedForm):
    """Computes a functional model that decodes, from stored panels; its answers are the model's.

    Without oneDNN, a product of one row is fastest from panels, and of several from one panel.

    Args:
        model: functional.
        several_rows: whether it decodes several rows at once, such as beams: without oneDNN,
            loading then makes one panel of the panels, in their place. Their weights must be stored
            in float32.
    """

    def __init__(self, model: keras.Model, *, several_rows: bool = False) -> None:
        self._loading = _Loading()
        loading = self._loading if several_rows else None
        panels = partial(_StoredPanels, width=_DECODING_WIDTH, loading=loading)
        super().__init__(model, *_from(panels))
        self.matrices = _FOR_ONE_ROW if loading is None else _ARRANGED

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns what to save: the variables that a function reads, and what arranges them."""
        read = super().read(variables, functions)
        self._loading.only(read)
        return [*read, *self._loading.tracked()]

    def arrange(self) -> None:
        """Arranges the panels for this process, as loading an export does."""
        self._loading._initialize()


class ShortTextsForm(ReplacedForm):
    """Computes a functional model, with oneDNN batches of few tokens from panels.

    The export stores the matrices as they are and arranges them once, when it is loaded. Without
    oneDNN each is one panel, and all batches are multiplied by it.

    Args:
        model: functional, with a padding mask.
    """

    matrices = _ARRANGED

    def __init__(self, model: keras.Model) -> None:
        calls = call_arguments(model)
        multiplied = {layer for layer, _, options in calls if options.get("reverse")}
        self._loading = _Loading()
        panels = partial(_LoadedPanels, width=_SHORT_TEXTS_WIDTH, loading=self._loading)
        super().__init__(model, *_from(panels), lambda layer: layer in multiplied)
        self._short_norms = fused_norms(every_layer(model), short_norm)
        self.kernels = {}  # they would multiply any number of rows

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        num_tokens = tf.math.count_nonzero(inputs["padding_mask"])
        return tf.cond(
            num_tokens <= self._loading.most_tokens(),
            lambda: self._run(inputs, {**self._short_norms, **self.replaced}),
            lambda: self._run(inputs, self._plain),
        )

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns what to save: the variables that a function reads, and what fills the panels."""
        return [*super().read(variables, functions), *self._loading.tracked()]


class _Loading(tf.saved_model.experimental.TrackableResource):
    """Arranges matrices for the processor that loads an export.

    TensorFlow runs the initializers of its resources after it has restored the variables.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: list[tuple[tf.Variable, Callable[[Tensor], Tensor]]] = []
        self._joins: list[tuple[tf.Variable, Callable[[], None]]] = []

    def variable(self, value: Callable[[Tensor], Tensor], *, shape: Any = None) -> tf.Variable:
        """Returns a variable that is not saved: loading sets it.

        Args:
            value: returns the value, from whether TensorFlow computes with oneDNN.
            shape: the variable's, if it depends on that.
        """
        with tf.init_scope():
            variable = tf.Variable(value(computes_with_onednn()), trainable=False, shape=shape)
        leave_out_of_checkpoints(variable)
        self._values.append((variable, value))
        return variable

    def most_tokens(self) -> Tensor:
        """Returns the number of tokens up to which batches are multiplied by panels."""
        return tf.convert_to_tensor(self._most_tokens)

    @cached_property
    def _most_tokens(self) -> tf.Variable:
        def most(onednn: Tensor) -> Tensor:
            return tf.where(
                onednn, *(tf.constant(n, tf.int64) for n in (_FEW_TOKENS, tf.int64.max))
            )

        return self.variable(most)

    def without_onednn(self, variable: tf.Variable, join: Callable[[], None]) -> None:
        """Has loading change a variable where TensorFlow computes without oneDNN."""
        self._joins.append((variable, join))

    def only(self, variables: Iterable[tf.Variable]) -> None:
        """Leaves out the changes to other variables, which the export does not have."""
        kept = {variable.ref() for variable in variables}
        self._joins = [(variable, join) for variable, join in self._joins if variable.ref() in kept]

    def tracked(self) -> list[Any]:
        """Returns what an export must hold in addition: this, and its variables."""
        variables = [variable for variable, _ in self._values]
        return [self, *variables] if variables or self._joins else []

    def _create_resource(self) -> Any:  # a handle, which TensorFlow asks for; nothing reads it
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="loading")

    def _initialize(self) -> None:
        onednn = computes_with_onednn()
        for variable, value in self._values:
            variable.assign(value(onednn))
        for _, join in self._joins:
            tf.cond(onednn, lambda: None, join)


@tf.function(autograph=False)
def computes_with_onednn() -> Tensor:
    """Returns whether TensorFlow computes with oneDNN in this process, as a boolean tensor.

    It does by default on processors with AVX-512 VNNI, bfloat16 or AMX, and elsewhere with
    `TF_ENABLE_ONEDNN_OPTS=1`. oneDNN's batch norm returns nothing in the place of what a GPU keeps
    for the gradient, and TensorFlow's own a number.
    """
    with tf.device("CPU:0"):
        # No optimizer knows the time, and so none computes the norm in advance, without oneDNN.
        image = tf.fill((1, 1, 1, 1), tf.cast(tf.timestamp(), tf.float32))
        one, none = tf.ones((1,)), tf.zeros((0,))
        *_, kept = tf.raw_ops.FusedBatchNormV3(
            x=image, scale=one, offset=one, mean=none, variance=none, is_training=True
        )
        return tf.equal(tf.size(kept), 0)


class _Panels:
    """A matrix in panels of columns; zeros fill up the last one.

    Args:
        matrix: (features, units), or with `transposed` (units, features).
        width: columns of a panel.

    Attributes:
        units: columns of the matrix.
        columns: those of all panels.
        variables: those to save.
    """

    def __init__(self, matrix: keras.Variable, width: int, *, transposed: bool = False) -> None:
        self.units = matrix.shape[0 if transposed else 1]
        self.columns = -(-self.units // width) * width
        self.variables: list[keras.Variable] = []
        self._matrix, self._width, self._transposed = matrix, width, transposed

    def read(self) -> Tensor:
        """Returns the panels, (panels, features, width)."""
        raise NotImplementedError

    def products(self, rows: Tensor) -> Tensor:
        """Multiplies rows (rows, features) by each panel: (panels, rows, width)."""
        return tf.raw_ops.BatchMatMulV2(x=rows, y=self.read())

    def multiply(self, rows: Tensor) -> Tensor:
        """Multiplies rows (rows, features) by the matrix: (rows, units)."""
        products = tf.transpose(self.products(rows), (1, 0, 2))  # (rows, panels, width)
        joined = tf.reshape(products, (-1, self.columns))
        return joined if self.columns == self.units else joined[:, : self.units]

    def whole(self) -> Tensor:
        """Returns the matrix, (features, columns)."""
        matrix = tf.convert_to_tensor(self._matrix.value)
        matrix = tf.transpose(matrix) if self._transposed else matrix
        return tf.pad(matrix, [(0, 0), (0, self.columns - self.units)])

    def cut(self) -> Tensor:
        """Cuts the matrix into panels of the same width, (panels, features, width)."""
        matrix = self.whole()
        panels = tf.reshape(matrix, (matrix.shape[0], -1, self._width))
        return tf.transpose(panels, (1, 0, 2))


class _StoredPanels(_Panels):
    """Panels that the export stores in the matrix's place.

    Args:
        matrix, width, transposed: see `_Panels`.
        loading: what makes one panel of them without oneDNN; None keeps them. The variable keeps
            its shape, and another has that of the panels in it, so that a second time changes
            nothing.
    """

    def __init__(
        self,
        matrix: keras.Variable,
        width: int,
        loading: _Loading | None = None,
        *,
        transposed: bool = False,
    ) -> None:
        super().__init__(matrix, width, transposed=transposed)
        self.variables.append(keras.Variable(self.cut(), trainable=False))
        if loading is not None:
            shape = keras.Variable(self.variables[0].shape, dtype="int32", trainable=False)
            self.variables.append(shape)
            loading.without_onednn(self.variables[0].value, self._join)

    def read(self) -> Tensor:
        """Returns the panels, (panels, features, width)."""
        panels, *shape = map(keras.ops.convert_to_tensor, self.variables)
        if not shape:
            return panels
        return tf.ensure_shape(tf.reshape(panels, *shape), (None, panels.shape[1], None))

    def _join(self) -> None:
        """Makes one panel of the panels."""
        panels, shape = (variable.value for variable in self.variables)
        whole = self.read()
        joined = tf.transpose(whole, (1, 0, 2))  # if it is one already, this moves nothing
        panels.assign(tf.reshape(joined, panels.shape))
        shape.assign((1, panels.shape[1], self.columns))


class _LoadedPanels(_Panels):
    """Panels that are made when the export is loaded, if a graph reads them.

    With oneDNN they have the same width; without, one panel has all columns.

    Args:
        matrix, width, transposed: see `_Panels`.
        loading: what makes them.
    """

    def __init__(
        self, matrix: keras.Variable, width: int, loading: _Loading, *, transposed: bool = False
    ) -> None:
        super().__init__(matrix, width, transposed=transposed)
        self._loading = loading
        self._apart = _APART if self.columns % _CROWDED == 0 else 0

    def read(self) -> Tensor:
        """Returns the panels, (panels, features, width)."""
        return tf.convert_to_tensor(self._variable)

    def products(self, rows: Tensor) -> Tensor:
        """Multiplies rows (rows, features) by each panel: (panels, rows, width)."""
        products = super().products(rows)
        return products[..., : self.columns] if self._apart else products

    def arranged(self, onednn: Tensor) -> Tensor:
        """Returns the panels, (panels, features, width), for kernels with or without oneDNN."""
        return tf.cond(onednn, self.cut, self._one)

    def _one(self) -> Tensor:
        return tf.pad(self.whole(), [(0, 0), (0, self._apart)])[None]

    @cached_property
    def _variable(self) -> tf.Variable:
        features = self._matrix.shape[1 if self._transposed else 0]
        return self._loading.variable(self.arranged, shape=(None, features, None))


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
        if panels.variables:  # those that loading makes are read as they are
            self.structure = (type(self), panels.units, panels.columns, self._activation)

    def __call__(self, rows: Tensor) -> Tensor:
        """Maps rows (rows, features) to (rows, units)."""
        outputs = self._panels.multiply(rows)
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
            logits = self._panels.multiply(tf.reshape(inputs, (-1, self._hidden)))
            return tf.reshape(logits, (*keras.ops.shape(inputs)[:-1], self._panels.units))
        ids, panels = tf.cast(inputs, tf.int64)[..., None], self._panels.read()
        width = tf.cast(keras.ops.shape(panels)[2], tf.int64)
        rows = tf.range(self._hidden, dtype=tf.int64)  # of a panel
        places = (ids // width * self._hidden + rows) * width + ids % width
        vectors = tf.gather(tf.reshape(panels, [-1]), places)
        return vectors if self._scale == 1.0 else vectors * self._scale


def _from(panels: Callable[..., _Panels]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns what makes a `_PanelDense` and a `_PanelEmbedding`, with panels of this kind."""

    def dense(kernel: keras.Variable, *others: Any) -> _PanelDense:
        return _PanelDense(panels(kernel), *others)

    def table(layer: TokenEmbedding) -> _PanelEmbedding:
        return _PanelEmbedding(layer, panels(layer.embeddings, transposed=True))

    return dense, table
