"""Counts the floating-point operations of a model's matrix products, layer by layer.

A multiplication and an addition count as two operations, as in the figures of accelerator vendors.
As in the papers' formulas, the count covers products with weight matrices and, in attention, of
queries with keys and of probabilities with values. Norms, softmax, activations and embedding
lookups are left out: they take time, but few operations.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import keras

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.inspection.flops_rules import RULES, WITHOUT_PRODUCTS, Rule
from keras_transformers.layers.scopes import SELECTIONS
from keras_transformers.models.classes.headed_encoder import HeadedEncoder

__all__ = [
    "FlopsRow",
    "UpdateCost",
    "flops_table",
    "forward_flops",
    "input_shapes",
    "training_flops",
    "update_cost",
]

# Forward, backward for the inputs, and backward for the weights take the same number of products.
_TRAINING_PASSES = 3

Shape = tuple[int, ...]


@dataclass(frozen=True)
class FlopsRow:
    """Holds the operations of one layer.

    Attributes:
        name: the layer's name.
        flops: operations of a forward pass over the whole batch.
    """

    name: str
    flops: int


class UpdateCost(NamedTuple):
    """Holds the cost of an update, for the logs.

    Attributes:
        tokens_per_step: real tokens of all replicas.
        flops_per_step: operations, forward and backward.
    """

    tokens_per_step: float
    flops_per_step: float


def flops_table(
    model: keras.Model,
    input_shapes: Mapping[str, Shape],
    *,
    rules: Mapping[type, Rule] | None = None,
) -> list[FlopsRow]:
    """Counts the operations of a forward pass layer by layer, leaving out layers without products.

    Padding and positions hidden by a causal mask also count, because the machine computes them.

    Args:
        model: a functional model with named inputs, built from this package's layers and Keras'
            dense, attention, convolutional and recurrent ones. The model is not run.
        input_shapes: the shape of each input, batch first: {"token_ids": (32, 128), ...}.
        rules: class -> a function that counts the operations of a call, for other layers or to
            replace the rules here. Its arguments are the layer and those of the layer's call.

    Returns:
        Rows in the order of the graph; a layer that is used twice has two rows.

    Raises:
        ValueError: `input_shapes` does not match the model's inputs, or a layer with matrices has
            no rule.

    Example:
        >>> from keras_transformers.families.gpt.model import gpt
        >>> model = gpt(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...             max_sequence_length=16)
        >>> for row in flops_table(model, {"token_ids": (1, 4)}):
        ...     print(row.name, row.flops)
        decoder_layer_0 6656
        token_embedding 3200
    """
    if not isinstance(model.input, Mapping) or set(model.input) != set(input_shapes):
        wanted = ", ".join(model.input) if isinstance(model.input, Mapping) else "no named ones"
        raise ValueError(
            f"input_shapes has {', '.join(input_shapes)}, but model {model.name!r} has the inputs "
            f"{wanted}: pass the shape of each"
        )
    rows: list[FlopsRow] = []

    def counted(layer: Any, *args: Any, **kwargs: Any) -> Any:
        flops = _flops(rules or {}, layer, *args, **kwargs)
        if flops:
            rows.append(FlopsRow(layer.name, flops))
        return layer.compute_output_spec(*args, **kwargs)

    inputs = {
        name: keras.KerasTensor(input_shapes[name], dtype=tensor.dtype)
        for name, tensor in model.input.items()
    }
    selection = model.selection.of(inputs) if isinstance(model, HeadedEncoder) else {}
    with SELECTIONS.use(selection):
        # Keras' `compute_output_spec` of a functional model does the same with new shapes.
        run_through_graph(model, inputs, lambda layer: functools.partial(counted, layer))
    return rows


def input_shapes(model: keras.Model, *, batch_size: int, length: int) -> dict[str, Shape]:
    """Returns the shapes of a model's inputs for a batch of texts, for `flops_table`.

    Args:
        model: a model with named inputs.
        batch_size: the size of each first axis.
        length: tokens per text, for axes of any size. `mask_positions`, the masked words of
            pretraining, has 15 % of it.
    """

    def shape(name: str, axes: tuple[int | None, ...]) -> Shape:
        free = max(1, round(0.15 * length)) if name == "mask_positions" else length
        return (batch_size, *(free if size is None else size for size in axes[1:]))

    return {name: shape(name, tensor.shape) for name, tensor in model.input.items()}


def forward_flops(
    model: keras.Model,
    input_shapes: Mapping[str, Shape],
    *,
    rules: Mapping[type, Rule] | None = None,
) -> int:
    """Counts the operations of a forward pass over a batch. See `flops_table`."""
    return sum(row.flops for row in flops_table(model, input_shapes, rules=rules))


def training_flops(
    model: keras.Model,
    input_shapes: Mapping[str, Shape],
    *,
    rules: Mapping[type, Rule] | None = None,
) -> int:
    """Counts the operations of an update, three times the forward pass. See `flops_table`.

    Divided by the time of an update and the accelerators' peak, this is the "model FLOP
    utilisation" (Chowdhery et al. 2022, "PaLM", appendix B). Frozen layers count like trained ones,
    so with a frozen encoder the result is too high.
    """
    return _TRAINING_PASSES * forward_flops(model, input_shapes, rules=rules)


def update_cost(
    model: keras.Model,
    *,
    rows: float,
    length: float | tuple[float, ...] | Mapping[str, float],
    other_lengths: Mapping[str, float] | None = None,
    rules: Mapping[type, Rule] | None = None,
) -> UpdateCost:
    """Computes the mean cost of an update when batches differ in rows and lengths.

    This is the cost of `rows` rows of mean length, counting only real tokens, so time spent on
    padding shows as lower utilisation. Attention scores grow with the square of the length; they
    are counted at the mean length, not averaged.

    Args:
        model: see `flops_table`.
        rows: mean rows per update: the examples of an epoch divided by its updates.
        length: mean number of real tokens per row, used for every input size that is not fixed; or
            one number per input, if they differ, whose sum is a row's tokens; or, for inputs such
            as (batch, choices, length), the mean of each size, whose product is a row's tokens.
        other_lengths: lengths of inputs that hold no tokens, such as mask positions.
        rules: See `flops_table`.

    Example:
        >>> from keras_transformers.families.gpt.model import gpt
        >>> model = gpt(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...             max_sequence_length=16)
        >>> update_cost(model, rows=2.5, length=4)
        UpdateCost(tokens_per_step=10.0, flops_per_step=73920.0)
    """
    by_input = length if isinstance(length, Mapping) else dict.fromkeys(model.input, length)
    lengths: dict[str, Any] = {**by_input, **(other_lengths or {})}

    def shape(name: str, sizes: Shape) -> Shape:
        means = iter(lengths[name]) if isinstance(length, tuple) else repeat(lengths[name])
        return (1, *(size or max(1, round(next(means))) for size in sizes[1:]))

    shapes = {name: shape(name, tensor.shape) for name, tensor in model.input.items()}
    return UpdateCost(
        update_tokens(rows, length), float(rows * training_flops(model, shapes, rules=rules))
    )


def update_tokens(rows: float, length: float | tuple[float, ...] | Mapping[str, float]) -> float:
    """Returns the mean number of real tokens of an update; see `update_cost`."""
    if isinstance(length, Mapping):
        return float(rows * sum(length.values()))
    return float(rows * (math.prod(length) if isinstance(length, tuple) else length))


def _flops(rules: Mapping[type, Rule], layer: Any, *args: Any, **kwargs: Any) -> int:
    """Counts the operations of one layer's forward pass on inputs of these shapes."""
    # The first match wins; a pooler is also a dense layer, and a caller's layer may be one.
    for kind, rule in (*rules.items(), *RULES.items()):
        if isinstance(layer, kind):
            return rule(layer, *args, **kwargs)
    if isinstance(layer, keras.Model):  # a layer of another one, such as ELECTRA's generator
        inputs = args[0]
        shapes = {name: tensor.shape for name, tensor in inputs.items()}
        return forward_flops(layer, shapes, rules=rules)
    if hasattr(layer, "inner_call"):  # it runs a model on other rows, which it makes of its inputs
        return forward_flops(*layer.inner_call(*args), rules=rules)
    if isinstance(layer, WITHOUT_PRODUCTS):
        return 0
    matrices = [w.path for w in getattr(layer, "weights", ()) if len(w.shape) > 1]
    if matrices:
        raise ValueError(
            f"no rule counts the operations of layer {layer.name!r}, a {type(layer).__name__} with "
            f"{', '.join(matrices)}: add a function for this class to `rules`"
        )
    return 0
