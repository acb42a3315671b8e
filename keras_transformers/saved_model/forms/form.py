"""The form in which an export computes a model: the same numbers in less time.

In Python a model's blocks compute all positions. In its export the same blocks are handed
`layouts.Rows`: query, key and value are one matrix product, padding is not computed, and the mask
of the scores is made once for all blocks. Layers are handed kernels by `scopes.KERNELS`, such as
one that computes a layer norm in one step. The export's check compares its answers with the
model's own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras.layers import Layer

from keras_transformers.dependencies.private_api import (
    call_arguments,
    inner_layers,
    run_through_graph,
)
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import MultiHeadAttention, Rows, TransformerBlock
from keras_transformers.layers.layouts import joined_product
from keras_transformers.layers.scopes import KERNELS, SELECTIONS
from keras_transformers.layers.shared import shared_call
from keras_transformers.models.selection import HeadSelection
from keras_transformers.saved_model.forms.norms import fused_norms

Kernels = Mapping[Layer, Callable[..., Tensor]]


class ExportForm:
    """Computes a functional model as its export does.

    It has copies of weights: make it when they no longer change. At padding its vectors are not the
    model's own: nothing that reads them may reach an answer, which the check of an export shows.

    Args:
        model: functional. Its blocks in float32 that see a whole text compute real tokens alone;
            what else it has runs as it is, causal and cross-attention among it.

    Attributes:
        matrices: how they lie, and for which processors; `show` prints it.
        weights: the model's weights and the copies.
        on_rows: the blocks that compute real tokens alone.
        kernels: what computes the model's layers where they do not run by `__call__`, such as in
            the steps of decoding.
    """

    matrices = "as in the model"

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self._selection = HeadSelection(model)
        calls = call_arguments(model)
        others = {layer for layer, args, kwargs in calls if not _on_rows(layer, args, kwargs)}
        self.on_rows = [layer for layer in model.layers if layer not in others]
        attentions = [block.self_attention for block in self.on_rows]
        self._joined = {attention: _joined(attention) for attention in attentions}
        self._norms = fused_norms(every_layer(model))
        self._products: Kernels = {
            x: partial(joined_product, kernel=k, bias=b) for x, (k, b) in self._joined.items()
        }
        self._plain: Kernels = {**self._norms, **self._products}
        self.kernels: Kernels = {}
        copies = [w for weights in self._joined.values() for w in weights if w is not None]
        self.weights = [*model.weights, *copies]

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        return self._run(inputs, self._plain)

    def differentiable(
        self, inputs: Mapping[str, Tensor], instead: Callable[[Layer], Callable[..., Any]]
    ) -> dict[str, Tensor]:
        """Computes the model's outputs without kernels that have no gradient; see `scopes`.

        Args:
            inputs: the model's inputs by name.
            instead: returns what to call instead of a layer, or the layer.
        """
        return self._run(inputs, self._products, instead)

    def _run(
        self,
        inputs: Mapping[str, Tensor],
        kernels: Kernels,
        instead: Callable[[Layer], Callable[..., Any]] | None = None,
    ) -> dict[str, Tensor]:
        instead = _shared if instead is None else instead

        def operation(layer: Layer) -> Callable[..., Any]:
            compute = kernels.get(layer, layer) if layer in self._norms else instead(layer)

            def plain(*args: Any, **kwargs: Any) -> Any:
                args, kwargs = keras.tree.map_structure(_padded, (args, kwargs))
                return compute(*args, **kwargs)

            def on_rows(
                hidden: Any,
                *,
                attention_mask: Tensor = None,
                attention_bias: Tensor = None,
                distance_vectors: Tensor = None,
                **_: Any,  # None or False
            ) -> Any:
                rows = _rows(hidden, attention_mask)
                values = layer(
                    rows.values,
                    layout=rows.layout,
                    attention_bias=attention_bias,
                    distance_vectors=distance_vectors,
                )
                return values if layer is self._selection.block else _TokenRows(values, rows.layout)

            return on_rows if layer in self.on_rows else plain

        with KERNELS.use(kernels), SELECTIONS.use(self._selection.of(inputs)):
            outputs = run_through_graph(self.model, inputs, operation)
        return keras.tree.map_structure(_padded, outputs)

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns what to save: the variables that a function reads, often the copy alone.

        Args:
            variables: TensorFlow's, one for each of `weights`.
            functions: concrete functions.
        """
        captured = {tensor.ref() for function in functions for tensor in function.captured_inputs}
        return [variable for variable in variables if variable.handle.ref() in captured]


def every_layer(model: keras.Model) -> list[Layer]:
    """Returns the model's layers and those inside them, each once."""
    layers = (inner for layer in model.layers for inner in (layer, *inner_layers(layer)))
    return list(dict.fromkeys(layers))


@dataclass(frozen=True)
class _TokenRows:
    """Vectors of the real tokens between two blocks, (tokens, hidden), and where they stand."""

    values: Tensor
    layout: Rows


def _shared(layer: Layer) -> Callable[..., Any]:
    """Returns what calls a layer: a block from the graph that blocks of its structure share."""
    if not isinstance(layer, TransformerBlock):
        return layer

    def call(inputs: Tensor, encoder_output: Tensor = None, **options: Any) -> Tensor:
        tensors = {"inputs": inputs, "encoder_output": encoder_output, **options}
        return shared_call(layer, layer.__call__, **tensors)

    return call


def _padded(value: Any) -> Any:
    return value.layout.padded(value.values) if isinstance(value, _TokenRows) else value


def _rows(hidden: Any, padding_mask: Tensor) -> _TokenRows:
    if isinstance(hidden, _TokenRows) and hidden.layout.padding_mask is padding_mask:
        return hidden
    padded = _padded(hidden)
    layout = Rows(padding_mask, like=padded, take=tf.gather)
    return _TokenRows(layout.tokens(padded), layout)


def _joined(attention: MultiHeadAttention) -> tuple[keras.Variable, keras.Variable | None]:
    kernel, bias = (
        None if weight is None else keras.Variable(weight, trainable=False)
        for weight in attention.joined_weights()
    )
    return kernel, bias


def _on_rows(layer: Layer, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Returns whether a call of a layer can be one on real tokens alone."""
    if not isinstance(layer, TransformerBlock) or layer.compute_dtype != "float32":
        return False
    if layer.cross_attention is not None or layer.self_attention.use_causal_mask:
        return False
    options = {
        name: value for name, value in kwargs.items() if value is not None and value is not False
    }
    mask = options.get("attention_mask")
    takes_options = options.keys() <= {"attention_mask", "attention_bias", "distance_vectors"}
    return len(args) == 1 and takes_options and (mask is None or len(mask.shape) == 2)
