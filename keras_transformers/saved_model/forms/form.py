"""The form in which an export computes a model: the same numbers in less time.

In Python a model's blocks compute all positions. In its export the same blocks are handed
`layouts.Rows`: query, key and value are one matrix product, padding is not computed, and the mask
of the scores is made once for all blocks. A layer norm is one kernel. The export's check compares
its answers with the model's own.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.dependencies.private_api import (
    call_arguments,
    inner_layers,
    run_through_graph,
)
from keras_transformers.layers import MultiHeadAttention, Rows, TransformerBlock
from keras_transformers.saved_model.forms.norms import fused, fusible_norms


class ExportForm:
    """Computes a functional model as its export does.

    It has copies of weights: make it when they no longer change. At padding its vectors are not the
    model's own: nothing that reads them may reach an answer, which the check of an export shows.

    Args:
        model: functional. Its blocks in float32 that see a whole text compute real tokens alone;
            what else it has runs as it is, causal and cross-attention among it.

    Attributes:
        weights: the model's weights and the copies.
        on_rows: the blocks that compute real tokens alone, by their id.
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        calls = call_arguments(model)
        others = {id(layer) for layer, args, kwargs in calls if not _on_rows(layer, args, kwargs)}
        blocks = [layer for layer in model.layers if id(layer) not in others]
        self.on_rows = {id(block): block for block in blocks}
        attentions = [block.self_attention for block in blocks]
        self._joined = {id(attention): _joined(attention) for attention in attentions}
        copies = [w for joined in self._joined.values() for w in joined if w is not None]
        originals = [w for attention in attentions for w in _parts(attention)]
        self._either = {id(w) for w in (*copies, *originals)}
        self._norms = fusible_norms(every_layer(model))
        self.weights = [*model.weights, *copies]

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        with fused(self._norms):
            return self._run(inputs)

    def _project(self, attention: MultiHeadAttention, tokens: Any) -> Any:
        """Maps real tokens to their queries, keys and values, as `layouts.Rows` takes them."""
        kernel, bias = self._joined[id(attention)]
        product = keras.ops.matmul(tokens, kernel)
        return product if bias is None else keras.ops.add(product, bias)

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        def run(layer: Any) -> Callable[..., Any]:
            def plain(*args: Any, **kwargs: Any) -> Any:
                args, kwargs = keras.tree.map_structure(_padded, (args, kwargs))
                return layer(*args, **kwargs)

            def on_rows(
                hidden: Any, *, attention_mask: Any = None, attention_bias: Any = None, **_: Any
            ) -> Any:  # the others are None
                rows = self._rows(hidden, attention_mask)
                values = layer(rows.values, layout=rows.layout, attention_bias=attention_bias)
                return _TokenRows(values, rows.layout)

            return on_rows if id(layer) in self.on_rows else plain

        return keras.tree.map_structure(_padded, run_through_graph(self.model, inputs, run))

    def _rows(self, hidden: Any, padding_mask: Any) -> "_TokenRows":
        if isinstance(hidden, _TokenRows) and hidden.layout.padding_mask is padding_mask:
            return hidden
        padded = _padded(hidden)
        layout = Rows(padding_mask, like=padded, take=tf.gather, joined=self._project)
        return _TokenRows(layout.tokens(padded), layout)

    def in_place(self) -> contextlib.AbstractContextManager[None]:
        """Lets the model's own layers compute as the export does, also step by step, in graphs."""
        return contextlib.nullcontext()

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns what to save: no originals or copies that no function reads.

        Args:
            variables: TensorFlow's, one for each of `weights`.
            functions: concrete functions, each of which may read the original or the copy.
        """
        captured = {id(each) for function in functions for each in function.captured_inputs}
        return [
            variable
            for weight, variable in zip(self.weights, variables, strict=True)
            if id(weight) not in self._either or id(variable.handle) in captured
        ]


def every_layer(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the model's layers and those inside them, each once."""
    found = [each for layer in model.layers for each in (layer, *inner_layers(layer))]
    return list({id(each): each for each in found}.values())


@dataclass(frozen=True)
class _TokenRows:
    """Vectors of the real tokens between two blocks, (tokens, hidden), and where they stand."""

    values: Any
    layout: Rows


def _padded(value: Any) -> Any:
    return value.layout.padded(value.values) if isinstance(value, _TokenRows) else value


def _on_rows(layer: Any, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Returns whether a call of a layer can be one on real tokens alone."""
    if not isinstance(layer, TransformerBlock) or layer.compute_dtype != "float32":
        return False
    if layer.cross_attention is not None or layer.self_attention.use_causal_mask:
        return False
    given = {
        name: value for name, value in kwargs.items() if value is not None and value is not False
    }
    mask = given.get("attention_mask")
    known = len(args) == 1 and given.keys() <= {"attention_mask", "attention_bias"}
    return known and (mask is None or len(mask.shape) == 2)


def _joined(attention: MultiHeadAttention) -> tuple[keras.Variable, keras.Variable | None]:
    kernel, bias = (
        None if each is None else keras.Variable(each, trainable=False)
        for each in attention.joined_weights()
    )
    return kernel, bias


def _parts(attention: MultiHeadAttention) -> list[keras.Variable]:
    return [w for part in (attention.query, attention.key, attention.value) for w in part.weights]
