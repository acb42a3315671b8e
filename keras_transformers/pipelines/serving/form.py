"""The form in which an export computes a model: the same numbers in less time.

In Python a model runs layer by layer. Its export runs the same layers with three differences; the
export's check compares its answers with the model's own:

- Query, key and value are one matrix product.
- Padding is not computed: projections and feed-forward networks see the real tokens alone.
- The mask of the scores is made once for all layers.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.layers import EncoderLayer
from keras_transformers.layers.masks import RowLayout, TokenRows
from keras_transformers.private_api import run_through_graph

# With at most so many rows, TensorFlow's product (oneDNN) takes longer to arrange a matrix than to
# multiply by it. It arranges constants once, in a layout for 8 to 99 rows (measured; oneDNN chooses
# another one for fewer and for more, and would then arrange them anew in each call).
_FEW_TOKENS = 96
_LEAST_TOKENS = 8


class ServingForm:
    """Computes a functional model as its export does.

    It has copies of weights: make it when they no longer change. At padding its vectors are not the
    model's own: nothing that reads them may reach an answer, which the check of an export shows.

    Args:
        model: functional; what is not an `EncoderLayer` in float32 runs as it is.
        constant_matrices: whether batches of few tokens read the layers' matrices from constants in
            the graph.

    Attributes:
        weights: the model's weights and the copies.
    """

    def __init__(self, model: keras.Model, *, constant_matrices: bool = False) -> None:
        self.model = model
        layers = [layer for layer in model.layers if _runs_on_rows(layer)]
        self._joined = {layer.name: _joined(layer) for layer in layers}
        copies = [w for joined in self._joined.values() for w in joined if w is not None]
        originals = [w for layer in layers for w in _parts(layer)]
        self._either = {id(w) for w in (*copies, *originals)}
        self.weights = [*model.weights, *copies]
        self._constant: list[keras.Variable] = []
        if constant_matrices:
            unread = {id(w) for w in originals}
            read = [*copies, *(w for layer in layers for w in layer.weights)]
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

    def _projection(self, layer: EncoderLayer) -> Callable[[Any], Any]:
        """Returns what maps real tokens to query, key and value."""
        kernel, bias = self._joined[layer.name]

        def project(tokens: Any) -> Any:
            product = keras.ops.matmul(tokens, kernel)
            return product if bias is None else keras.ops.add(product, bias)

        return project

    def _run(self, inputs: Mapping[str, Any], *, min_tokens: int = 0) -> dict[str, Any]:
        def run(layer: Any) -> Callable[..., Any]:
            def plain(*args: Any, **kwargs: Any) -> Any:
                args, kwargs = keras.tree.map_structure(_padded, (args, kwargs))
                return layer(*args, **kwargs)

            def on_rows(
                hidden: Any, attention_mask: Any = None, attention_bias: Any = None, **others: Any
            ) -> Any:
                if others or (attention_mask is not None and len(attention_mask.shape) != 2):
                    masks = {"attention_mask": attention_mask, "attention_bias": attention_bias}
                    return plain(hidden, **masks, **others)
                rows = _rows(hidden, attention_mask, min_tokens)
                return layer.encode_rows(rows, self._projection(layer), attention_bias)

            return on_rows if layer.name in self._joined else plain

        return keras.tree.map_structure(_padded, run_through_graph(self.model, inputs, run))

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


def _runs_on_rows(layer: Any) -> bool:
    return (
        isinstance(layer, EncoderLayer)
        and not layer.use_causal_mask
        and layer.compute_dtype == "float32"
    )


def _joined(layer: EncoderLayer) -> tuple[keras.Variable, keras.Variable | None]:
    kernel, bias = (
        None if each is None else keras.Variable(each, trainable=False)
        for each in layer.self_attention.joined_weights()
    )
    return kernel, bias


def _parts(layer: EncoderLayer) -> list[keras.Variable]:
    attention = layer.self_attention
    return [w for part in (attention.query, attention.key, attention.value) for w in part.weights]


def _rows(hidden: Any, padding_mask: Any, min_tokens: int) -> TokenRows:
    if isinstance(hidden, TokenRows) and hidden.layout.padding_mask is padding_mask:
        return hidden
    padded = _padded(hidden)
    layout = RowLayout(padding_mask, like=padded, min_tokens=min_tokens, take=tf.gather)
    return TokenRows(layout.tokens(padded), layout)


def _padded(value: Any) -> Any:
    return value.padded() if isinstance(value, TokenRows) else value
