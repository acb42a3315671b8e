"""A form of exports whose dense layers and token embeddings keep their matrices in another way."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_transformers.layers import MultiHeadAttention, RowDense, TokenEmbedding
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
    """

    def __init__(self, model: keras.Model, *, least_units: int) -> None:
        super().__init__(model)
        float32 = [each for each in every_layer(model) if each.compute_dtype == "float32"]
        dense = [e for e in float32 if isinstance(e, RowDense) and e.units >= least_units]
        tables = [e for e in float32 if isinstance(e, TokenEmbedding) and self.replaces(e)]
        self.num_dense = len(dense)
        self._projections = {key: self.dense(*joined) for key, joined in self._joined.items()}
        self._replaced: list[tuple[Any, Any]] = [
            *((each, self.dense(each.kernel, each.bias, each.activation)) for each in dense),
            *((each, self.table(each)) for each in tables),
        ]
        self._is_replacing = False
        made = [*self._projections.values(), *(new for _, new in self._replaced)]
        copies = [variable for each in made for variable in each.variables]
        replaced: Iterable[Any] = (*tables, *dense)
        originals = [weight for layer in replaced for weight in layer.weights]
        self._either |= {id(weight) for weight in (*copies, *originals)}
        self.weights += copies

    def dense(self, kernel: Any, bias: Any, activation: Any = None) -> Any:
        """Returns what computes `activation(x W + b)` for rows; its `variables` are saved."""
        raise NotImplementedError

    def table(self, layer: TokenEmbedding) -> Any:
        """Returns what computes a `TokenEmbedding`; its `variables` are saved."""
        raise NotImplementedError

    def replaces(self, layer: TokenEmbedding) -> bool:
        """Returns whether `table` is to replace this embedding."""
        return True

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Computes the model's outputs from its inputs by name, in inference, in the graph."""
        with self._replacing():
            return super().__call__(**inputs)

    def in_place(self) -> contextlib.AbstractContextManager[None]:
        """Lets the model's own layers compute as the export does, also step by step, in graphs."""
        return self._replacing()

    def _project(self, attention: MultiHeadAttention, tokens: Any) -> Any:
        if self._is_replacing:
            return self._projections[id(attention)](tokens)
        return super()._project(attention, tokens)

    @contextlib.contextmanager
    def _replacing(self) -> Iterator[None]:
        before = [layer.in_place for layer, _ in self._replaced]
        was_replacing, self._is_replacing = self._is_replacing, True
        for layer, new in self._replaced:
            layer.in_place = new
        try:
            yield
        finally:
            self._is_replacing = was_replacing
            for (layer, _), was in zip(self._replaced, before, strict=True):
                layer.in_place = was
