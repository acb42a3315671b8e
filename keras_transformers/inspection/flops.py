"""How many floating-point operations a model's matrix products take, layer by layer.

One multiplication and one addition count as two operations, as in the figures that makers of
accelerators give. Counted is what the formulas of the papers count: products with matrices, and in
attention those of queries with keys and of probabilities with values. Norms, softmax, activations
and look-ups of embeddings are left out: they take time, but hardly any of these operations.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from keras_transformers.layers import (
    DecoderLayer,
    EncoderLayer,
    FirstTokenPooler,
    MultiHeadAttention,
    PositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.patches import ClassToken, PatchEmbedding

# Forward, and backward for the inputs and for the weights: as many products each.
_TRAINING_PASSES = 3
_WITHOUT_PRODUCTS = (keras.layers.Embedding, PositionEmbedding, ClassToken)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class FlopsRow:
    """One layer's share.

    Attributes:
        name: the layer's.
        flops: operations of a forward pass over the whole batch.
    """

    name: str
    flops: int


def flops_table(model: keras.Model, input_shapes: Mapping[str, Shape]) -> list[FlopsRow]:
    """The operations of a forward pass, layer by layer; layers without products are left out.

    Padding counts like text, as it does for the machine. A causal mask takes nothing off: the
    scores that it hides are computed too.

    Args:
        model: a functional model with named inputs, of BERT's, GPT's, ViT's or the Transformer's
            layers and dense ones; nothing of it is computed.
        input_shapes: of each input, batch first: {"token_ids": (32, 128), ...}.

    Returns:
        Rows in the order of the graph; a layer that is used twice has two.

    Raises:
        ValueError: inputs other than the model's, or a layer with matrices that has no rule here
            (those of recurrent networks, for one).

    Example:
        >>> from keras_transformers.models.gpt import causal_lm
        >>> model = causal_lm(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...                   max_sequence_length=16)
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
        flops = _flops(layer, *args, **kwargs)
        if flops:
            rows.append(FlopsRow(layer.name, flops))
        if isinstance(layer, EncoderLayer | DecoderLayer):  # spares tracing the layer
            return keras.KerasTensor(args[0].shape, dtype=layer.compute_dtype)
        return layer.compute_output_spec(*args, **kwargs)

    inputs = {
        name: keras.KerasTensor(input_shapes[name], dtype=tensor.dtype)
        for name, tensor in model.input.items()
    }
    # What Keras' own `compute_output_spec` of a functional model does with new shapes.
    model._run_through_graph(inputs, lambda layer: functools.partial(counted, layer))
    return rows


def forward_flops(model: keras.Model, input_shapes: Mapping[str, Shape]) -> int:
    """The operations of a forward pass over a batch; see `flops_table`."""
    return sum(row.flops for row in flops_table(model, input_shapes))


def training_flops(model: keras.Model, input_shapes: Mapping[str, Shape]) -> int:
    """The operations of an update: three times the forward pass; see `flops_table`.

    It is what "model FLOP utilisation" divides by the time of an update and the peak of the
    accelerators (Chowdhery et al. 2022, "PaLM", appendix B). Layers that do not train count as
    well, so with a frozen encoder it is too high.
    """
    return _TRAINING_PASSES * forward_flops(model, input_shapes)


def _flops(layer: Any, *args: Any, **kwargs: Any) -> int:
    """The operations of one layer's forward pass on inputs of these shapes."""
    for kind, rule in _RULES.items():
        if isinstance(layer, kind):
            return rule(layer, *args, **kwargs)
    if isinstance(layer, _WITHOUT_PRODUCTS):
        return 0
    matrices = [w.path for w in getattr(layer, "weights", ()) if len(w.shape) > 1]
    if matrices:
        raise ValueError(
            f"no rule for the operations of layer {layer.name!r}, a {type(layer).__name__} with "
            f"{', '.join(matrices)}: count them by hand, or leave the utilisation out"
        )
    return 0


def _dense(layer: Any, inputs: Any) -> int:
    return 2 * math.prod(inputs.shape[:-1]) * math.prod(layer.kernel.shape)


def _pooler(layer: FirstTokenPooler, inputs: Any) -> int:
    return 2 * inputs.shape[0] * math.prod(layer.kernel.shape)


def _token_embedding(layer: TokenEmbedding, inputs: Any, reverse: bool = False) -> int:
    if not reverse:
        return 0
    return 2 * math.prod(inputs.shape[:-1]) * layer.hidden_dim * layer.vocabulary_size


def _patches(layer: PatchEmbedding, images: Any) -> int:
    num_patches = math.prod(layer.compute_output_spec(images).shape[:2])
    return 2 * num_patches * math.prod(layer.kernel.shape)


def _attention(layer: MultiHeadAttention, query: Any, value: Any = None, **_: Any) -> int:
    value = query if value is None else value
    products = (layer.query, query), (layer.key, value), (layer.value, value)
    projections = sum(_dense(dense, inputs) for dense, inputs in products)
    batch, query_length, _features = query.shape
    output = 2 * batch * query_length * math.prod(layer.output_projection.kernel.shape)
    # Scores, and sums of values: each head its share of the width.
    return projections + output + 4 * batch * query_length * value.shape[1] * layer.hidden_dim


def _feed_forward(layer: FeedForward, inputs: Any) -> int:
    positions = math.prod(inputs.shape[:-1])
    return 4 * positions * layer.hidden_dim * layer.intermediate_dim


def _encoder_layer(layer: EncoderLayer, inputs: Any, **_: Any) -> int:
    return _attention(layer.self_attention, inputs) + _feed_forward(layer.feed_forward, inputs)


def _decoder_layer(layer: DecoderLayer, inputs: Any, encoder_output: Any, **_: Any) -> int:
    return (
        _attention(layer.self_attention, inputs)
        + _attention(layer.cross_attention, inputs, encoder_output)
        + _feed_forward(layer.feed_forward, inputs)
    )


# The first that fits: a pooler is a dense layer too.
_RULES: dict[type, Callable[..., int]] = {
    FirstTokenPooler: _pooler,
    keras.layers.Dense: _dense,
    TokenEmbedding: _token_embedding,
    PatchEmbedding: _patches,
    MultiHeadAttention: _attention,
    FeedForward: _feed_forward,
    EncoderLayer: _encoder_layer,
    DecoderLayer: _decoder_layer,
}
