"""The form in which an export computes a model: the same numbers in less time.

In Python a model's blocks compute all positions. In its export the same blocks are handed
`layouts.Rows`: query, key and value are one matrix product, padding is not computed, and the mask
of the scores is made once for all blocks. The export's check compares its answers with the model's
own.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.dependencies.private_api import call_arguments, run_through_graph
from keras_transformers.layers import MultiHeadAttention, Rows, TransformerBlock

# With at most so many rows, TensorFlow's product (oneDNN) takes longer to arrange a matrix than to
# multiply by it. It arranges constants once, in a layout for 8 to 99 rows (measured; oneDNN chooses
# another one for fewer and for more, and would then arrange them anew in each call).
_FEW_TOKENS = 96
_LEAST_TOKENS = 8


class ExportForm:
    """Computes a functional model as its export does.

    It has copies of weights: make it when they no longer change. At padding its vectors are not the
    model's own: nothing that reads them may reach an answer, which the check of an export shows.

    Args:
        model: functional. Its blocks in float32 that see a whole text compute real tokens alone;
            what else it has runs as it is, causal and cross-attention among it.
        constant_matrices: whether batches of few tokens read the layers' matrices from constants in
            the graph.

    Attributes:
        weights: the model's weights and the copies.
        on_rows: the blocks that compute real tokens alone, by their id.
    """

    def __init__(self, model: keras.Model, *, constant_matrices: bool = False) -> None:
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
        self.weights = [*model.weights, *copies]
        self._constant: list[keras.Variable] = []
        if constant_matrices:
            unread = {id(w) for w in originals}
            read = [*copies, *(w for block in blocks for w in block.weights)]
            self._constant = [w for w in read if len(w.shape) == 2 and id(w) not in unread]

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        if not self._constant:
            return self._run(inputs)
        with tf.init_scope():
            arrays = [weight.numpy() for weight in self._constant]

        def on_constants() -> dict[str, Any]:
            constants = [tf.constant(array) for array in arrays]
            with keras.StatelessScope(list(zip(self._constant, constants, strict=True))):
                return self._run(inputs, min_tokens=_LEAST_TOKENS)

        num_tokens = tf.math.count_nonzero(inputs["padding_mask"])
        few = tf.logical_and(num_tokens > 0, num_tokens <= _FEW_TOKENS)
        return tf.cond(few, on_constants, lambda: self._run(inputs))

    def _project(self, attention: MultiHeadAttention, tokens: Any) -> Any:
        """Maps real tokens to their queries, keys and values, as `layouts.Rows` takes them."""
        kernel, bias = self._joined[id(attention)]
        product = keras.ops.matmul(tokens, kernel)
        return product if bias is None else keras.ops.add(product, bias)

    def _run(self, inputs: Mapping[str, Any], *, min_tokens: int = 0) -> dict[str, Any]:
        def run(layer: Any) -> Callable[..., Any]:
            def plain(*args: Any, **kwargs: Any) -> Any:
                args, kwargs = keras.tree.map_structure(_padded, (args, kwargs))
                return layer(*args, **kwargs)

            def on_rows(
                hidden: Any, *, attention_mask: Any = None, attention_bias: Any = None, **_: Any
            ) -> Any:  # the others are None
                rows = self._rows(hidden, attention_mask, min_tokens)
                values = layer(rows.values, layout=rows.layout, attention_bias=attention_bias)
                return _TokenRows(values, rows.layout)

            return on_rows if id(layer) in self.on_rows else plain

        return keras.tree.map_structure(_padded, run_through_graph(self.model, inputs, run))

    def _rows(self, hidden: Any, padding_mask: Any, min_tokens: int) -> "_TokenRows":
        if isinstance(hidden, _TokenRows) and hidden.layout.padding_mask is padding_mask:
            return hidden
        padded = _padded(hidden)
        layout = Rows(
            padding_mask, like=padded, min_tokens=min_tokens, take=tf.gather, joined=self._project
        )
        return _TokenRows(layout.tokens(padded), layout)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Lets the model's own layers compute as the export does, also step by step, in graphs."""
        yield

    def read(self, variables: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
        """Returns the variables to save: no originals or copies that no function reads.

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
