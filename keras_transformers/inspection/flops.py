"""Counts the floating-point operations of a model's matrix products, layer by layer.

A multiplication and an addition count as two operations, as in accelerator makers' figures. As in
the papers' formulas, the count covers products with weight matrices and, in attention, of queries
with keys and of probabilities with values. Norms, softmax, activations and embedding lookups are
left out: they take time, but few operations.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import keras

from keras_transformers.layers import (
    DecoderLayer,
    EncoderLayer,
    FirstTokenPooler,
    MultiHeadAttention,
    PositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.layers.char_cnn import CharacterCNN, Highway
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.hierarchical_softmax import HierarchicalSoftmax
from keras_transformers.layers.patches import ClassToken, PatchEmbedding
from keras_transformers.layers.recurrent.attention import RnnAttention
from keras_transformers.layers.recurrent.cells import Recurrent
from keras_transformers.layers.recurrent.decoder import RecurrentDecoder
from keras_transformers.layers.recurrent.encoder import RecurrentEncoder
from keras_transformers.private_api import run_through_graph

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
_WITHOUT_PRODUCTS = (keras.layers.Embedding, PositionEmbedding, ClassToken)

Shape = tuple[int, ...]
Rule = Callable[..., int]  # takes the layer and the arguments of its call; returns operations


@dataclass(frozen=True)
class FlopsRow:
    """The operations of one layer.

    Attributes:
        name: the layer's name.
        flops: operations of a forward pass over the whole batch.
    """

    name: str
    flops: int


class UpdateCost(NamedTuple):
    """The cost of an update, for the logs.

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

    Padding and positions hidden by a causal mask count too, because the machine computes them.

    Args:
        model: a functional model with named inputs, built from this package's layers and Keras'
            dense, convolutional (2-D) and recurrent ones. The model is not run.
        input_shapes: the shape of each input, batch first: {"token_ids": (32, 128), ...}.
        rules: functions that count the operations of a call, for other layer classes.

    Returns:
        Rows in the order of the graph; a layer that is used twice has two rows.

    Raises:
        ValueError: `input_shapes` does not match the model's inputs, or a layer with matrices has
            no rule.

    Example:
        >>> from keras_transformers.models.gpt import gpt
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
            f"{wanted}: give the shape of each"
        )
    rows: list[FlopsRow] = []

    def counted(layer: Any, *args: Any, **kwargs: Any) -> Any:
        flops = _flops(_RULES | dict(rules or {}), layer, *args, **kwargs)
        if flops:
            rows.append(FlopsRow(layer.name, flops))
        return layer.compute_output_spec(*args, **kwargs)

    inputs = {
        name: keras.KerasTensor(input_shapes[name], dtype=tensor.dtype)
        for name, tensor in model.input.items()
    }
    # Keras' `compute_output_spec` of a functional model does the same with new shapes.
    run_through_graph(model, inputs, lambda layer: functools.partial(counted, layer))
    return rows


def input_shapes(model: keras.Model, *, batch_size: int, length: int) -> dict[str, Shape]:
    """Returns the shapes of a model's inputs for a batch of texts, for `flops_table`.

    Args:
        model: with named inputs.
        batch_size: the size of each first axis.
        length: tokens per text, for axes of any size. `mask_positions`, the masked words of
            pretraining, gets 15 % of it.
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

    This is the cost of `rows` rows of the mean length, counting only real tokens, so time spent on
    padding shows as lower utilisation. Attention scores grow with the square of the length; they
    are counted at the mean length, not averaged.

    Args:
        model: See `flops_table`.
        rows: mean rows per update: the examples of an epoch divided by its updates.
        length: mean number of real tokens per row, used for every input size that is not fixed; or
            one number per input, if they differ, whose sum is a row's tokens; or, for inputs such
            as (batch, choices, length), the mean of each size, whose product is a row's tokens.
        other_lengths: lengths of inputs that hold no tokens, such as mask positions.
        rules: See `flops_table`.

    Example:
        >>> from keras_transformers.models.gpt import gpt
        >>> model = gpt(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...             max_sequence_length=16)
        >>> update_cost(model, rows=2.5, length=4)
        UpdateCost(tokens_per_step=10.0, flops_per_step=73920.0)
    """
    given = length if isinstance(length, Mapping) else dict.fromkeys(model.input, length)
    lengths: dict[str, Any] = {**given, **(other_lengths or {})}

    def shape(name: str, sizes: Shape) -> Shape:
        means = iter(lengths[name]) if isinstance(length, tuple) else repeat(lengths[name])
        return (1, *(size or max(1, round(next(means))) for size in sizes[1:]))

    shapes = {name: shape(name, tensor.shape) for name, tensor in model.input.items()}
    if isinstance(length, Mapping):
        of_row = sum(length.values())
    else:
        of_row = math.prod(length) if isinstance(length, tuple) else length
    return UpdateCost(
        float(rows * of_row), float(rows * training_flops(model, shapes, rules=rules))
    )


def _flops(rules: Mapping[type, Rule], layer: Any, *args: Any, **kwargs: Any) -> int:
    """Counts the operations of one layer's forward pass on inputs of these shapes."""
    for kind, rule in rules.items():
        if isinstance(layer, kind):
            return rule(layer, *args, **kwargs)
    if isinstance(layer, _WITHOUT_PRODUCTS):
        return 0
    matrices = [w.path for w in getattr(layer, "weights", ()) if len(w.shape) > 1]
    if matrices:
        raise ValueError(
            f"no rule counts the operations of layer {layer.name!r}, a {type(layer).__name__} with "
            f"{', '.join(matrices)}: add one to `rules`, or leave out the utilisation"
        )
    return 0


def _dense(layer: Any, inputs: Any) -> int:
    return 2 * math.prod(inputs.shape[:-1]) * math.prod(layer.kernel.shape)


def _pooler(layer: FirstTokenPooler, inputs: Any, positions: Any = None) -> int:
    num_vectors = inputs.shape[0] if positions is None else math.prod(positions.shape)
    return 2 * num_vectors * math.prod(layer.kernel.shape)


def _token_embedding(layer: TokenEmbedding, inputs: Any, reverse: bool = False) -> int:
    if not reverse:
        return 0
    return 2 * math.prod(inputs.shape[:-1]) * layer.hidden_dim * layer.vocabulary_size


def _patches(layer: PatchEmbedding, images: Any) -> int:
    num_patches = math.prod(layer.compute_output_spec(images).shape[:2])
    return 2 * num_patches * math.prod(layer.kernel.shape)


def _convolution(layer: keras.layers.Conv2D, inputs: Any) -> int:
    num_places = math.prod(layer.compute_output_shape(inputs.shape)) // layer.filters
    return 2 * num_places * math.prod(layer.kernel.shape)


def _attention(layer: MultiHeadAttention, query: Any, value: Any = None, **_: Any) -> int:
    value = query if value is None else value
    products = (layer.query, query), (layer.key, value), (layer.value, value)
    projections = sum(_dense(dense, inputs) for dense, inputs in products)
    batch, query_length, _features = query.shape
    output = 2 * batch * query_length * math.prod(layer.output_projection.kernel.shape)
    # Scores and weighted sums of values, each over the width of all heads together.
    width = layer.num_heads * layer.head_dim
    return projections + output + 4 * batch * query_length * value.shape[1] * width


def _feed_forward(layer: FeedForward, inputs: Any) -> int:
    positions = math.prod(inputs.shape[:-1])
    matrices = 3 if layer.gated else 2
    return 2 * matrices * positions * layer.hidden_dim * layer.intermediate_dim


def _encoder_layer(layer: EncoderLayer, inputs: Any, **_: Any) -> int:
    return _attention(layer.self_attention, inputs) + _feed_forward(layer.feed_forward, inputs)


def _decoder_layer(layer: DecoderLayer, inputs: Any, encoder_output: Any, **_: Any) -> int:
    return (
        _attention(layer.self_attention, inputs)
        + _attention(layer.cross_attention, inputs, encoder_output)
        + _feed_forward(layer.feed_forward, inputs)
    )


def _cell(cell: Any) -> int:
    """Counts one step of one row, which uses each matrix once."""
    return 2 * sum(math.prod(weight.shape) for weight in cell.weights if len(weight.shape) > 1)


def _recurrent(layer: Recurrent, inputs: Any, *_: Any) -> int:
    return math.prod(inputs.shape[:2]) * _cell(layer.cell)


def _recurrent_encoder(layer: RecurrentEncoder, inputs: Any, **_: Any) -> int:
    flops = sum(
        _recurrent(one, inputs) for directions in layer.recurrent_layers for one in directions
    )
    batch, source = inputs.shape[:2]
    if layer.mean:
        width = sum(one.cell.output_dim for one in layer.recurrent_layers[-1])
        flops += 2 * batch * source * width
    if layer.context:
        flops += 2 * batch * math.prod(layer.context.kernel.shape)
    return flops


def _recurrent_decoder(
    layer: RecurrentDecoder, inputs: Any, encoded: Mapping[str, Any], **_: Any
) -> int:
    batch, steps = inputs.shape[:2]
    flops = batch * steps * sum(map(_cell, layer.cells))
    if layer.attention:
        flops += _rnn_attention(layer.attention, layer.units, steps, encoded["memory"])
    if layer.context_projection:  # once per step, or once if all steps share the context
        uses = steps if layer.attention else 1
        flops += 2 * batch * uses * math.prod(layer.context_projection.kernel.shape)
    if layer.readout:
        flops += 2 * batch * steps * math.prod(layer.readout.kernel.shape)
    bridges = [bridge for states in layer.bridges or () for bridge in states]
    return flops + 2 * batch * sum(math.prod(bridge.kernel.shape) for bridge in bridges)


def _rnn_attention(layer: RnnAttention, query_dim: int, queries: int, memory: Any) -> int:
    """Counts the projections of queries and, once, of keys, the scores and the weighted sums."""
    batch, source, width = memory.shape
    keys = {"general": query_dim, "dot": width}.get(layer.kind, 0)
    flops = 2 * batch * queries * source * (keys + width)
    if layer.kind in ("general", "additive"):
        flops += _dense(layer.key, memory)
    if layer.kind == "additive":
        flops += 2 * batch * queries * math.prod(layer.query.kernel.shape)
        flops += 2 * batch * queries * source * math.prod(layer.score.kernel.shape)
    if layer.kind == "location":  # one score per position of the layer
        flops += 2 * batch * queries * math.prod(layer.score.kernel.shape)
    return flops


def _keras_recurrent(layer: Any, inputs: Any, *_: Any, **__: Any) -> int:
    kernels = layer.cell.kernel, layer.cell.recurrent_kernel
    return 2 * math.prod(inputs.shape[:2]) * sum(math.prod(kernel.shape) for kernel in kernels)


def _bidirectional(layer: keras.layers.Bidirectional, inputs: Any, *_: Any, **__: Any) -> int:
    both = layer.forward_layer, layer.backward_layer
    return sum(_keras_recurrent(one, inputs) for one in both)


def _character_cnn(layer: CharacterCNN, character_ids: Any) -> int:
    *words, characters = character_ids.shape
    places = (characters - width + 1 for width, _ in layer.filters)
    kernels = (math.prod(kernel.shape) for kernel in layer.kernels)
    return 2 * math.prod(words) * sum(map(math.prod, zip(places, kernels, strict=True)))


def _highway(layer: Highway, inputs: Any) -> int:
    return _dense(layer.carry, inputs) + _dense(layer.transform, inputs)


def _model(model: keras.Model, inputs: Any, **_: Any) -> int:
    """Counts a functional model that is a layer of another, such as ELECTRA's generator."""
    return forward_flops(model, {name: tensor.shape for name, tensor in inputs.items()})


# The first match wins: a pooler is also a dense layer.
_RULES: dict[type, Rule] = {
    FirstTokenPooler: _pooler,
    keras.layers.Dense: _dense,
    TokenEmbedding: _token_embedding,
    PatchEmbedding: _patches,
    keras.layers.Conv2D: _convolution,
    MultiHeadAttention: _attention,
    FeedForward: _feed_forward,
    EncoderLayer: _encoder_layer,
    DecoderLayer: _decoder_layer,
    Recurrent: _recurrent,
    RecurrentEncoder: _recurrent_encoder,
    RecurrentDecoder: _recurrent_decoder,
    CharacterCNN: _character_cnn,
    Highway: _highway,
    HierarchicalSoftmax: _dense,
    keras.layers.LSTM: _keras_recurrent,
    keras.layers.GRU: _keras_recurrent,
    keras.layers.SimpleRNN: _keras_recurrent,
    keras.layers.Bidirectional: _bidirectional,
    keras.Model: _model,
}
