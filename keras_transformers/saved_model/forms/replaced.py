"""A form of exports whose dense layers and token embeddings keep their matrices in another way."""

from typing import Any

import keras

from keras_transformers.layers import RowDense, TokenEmbedding
from keras_transformers.layers.dense import Function
from keras_transformers.layers.tensors import Tensor
from keras_transformers.saved_model.forms.form import ExportForm, every_layer


class ReplacedForm(ExportForm):
    """Computes a functional model with something else in the place of its matrices.

    Subclasses say what, by `dense` and `table`.

    Args:
        model: functional.
        least_units: units of the narrowest dense layer to replace; narrower ones, such as heads,
            gain nothing.

    Attributes:
        num_dense: how many dense layers are replaced.
        replaced: what computes each layer that is replaced.
    """

    def __init__(self, model: keras.Model, *, least_units: int) -> None:
        super().__init__(model)
        float32 = [layer for layer in every_layer(model) if layer.compute_dtype == "float32"]
        dense = [x for x in float32 if isinstance(x, RowDense) and x.units >= least_units]
        tables = [x for x in float32 if isinstance(x, TokenEmbedding) and self.replaces(x)]
        self.num_dense = len(dense)
        self._projections = {
            attention: self.dense(joined.kernel, joined.bias)
            for attention, joined in self._joined.items()
        }
        self.replaced = {x: self.dense(x.kernel, x.bias, x.activation) for x in dense}
        self.replaced |= {table: self.table(table) for table in tables}
        self.kernels = self.replaced
        computing = (*self._projections.values(), *self.replaced.values())
        self.weights += [variable for kernel in computing for variable in kernel.variables]

    def dense(
        self,
        kernel: keras.Variable,
        bias: keras.Variable | None,
        activation: Function | None = None,
    ) -> Any:
        """Returns what computes `activation(x W + b)` for rows; its `variables` are saved."""
        raise NotImplementedError

    def table(self, layer: TokenEmbedding) -> Any:
        """Returns what computes a `TokenEmbedding`; its `variables` are saved."""
        raise NotImplementedError

    def replaces(self, layer: TokenEmbedding) -> bool:
        """Returns whether `table` is to replace this embedding."""
        return True

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        return self._run(inputs, self._projections, {**self._norms, **self.replaced})
