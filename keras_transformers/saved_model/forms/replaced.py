"""A form of exports whose dense layers and token embeddings keep their matrices in another way."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import RowDense, TokenEmbedding
from keras_transformers.saved_model.forms.form import ExportForm, every_layer

WIDE = 64  # units of the narrowest dense layer that gains anything, unlike heads


class ReplacedForm(ExportForm):
    """Computes a functional model with something else in the place of its matrices.

    Args:
        model: functional.
        dense: makes what computes `activation(x W + b)` for rows, from W, b or None, and the
            activation if there is one; its `variables` are saved.
        table: makes what computes a `TokenEmbedding`; its `variables` are saved.
        replaces: whether to replace an embedding; by default all.

    Attributes:
        num_dense: how many dense layers are replaced.
        replaced: what computes each layer that is replaced.
    """

    def __init__(
        self,
        model: keras.Model,
        dense: Callable[..., Any],
        table: Callable[[TokenEmbedding], Any],
        replaces: Callable[[TokenEmbedding], bool] = lambda _: True,
    ) -> None:
        super().__init__(model)
        float32 = [layer for layer in every_layer(model) if layer.compute_dtype == "float32"]
        wide = [x for x in float32 if isinstance(x, RowDense) and x.units >= WIDE]
        tables = [x for x in float32 if isinstance(x, TokenEmbedding) and replaces(x)]
        self.num_dense = len(wide)
        self.replaced = {
            **{attention: dense(*joined) for attention, joined in self._joined.items()},
            **{layer: dense(layer.kernel, layer.bias, layer.activation) for layer in wide},
            **{layer: table(layer) for layer in tables},
        }
        self.kernels = self.replaced
        self.weights += [w for kernel in self.replaced.values() for w in kernel.variables]

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        return self._run(inputs, {**self._norms, **self.replaced})
