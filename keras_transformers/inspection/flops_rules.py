"""Counts the operations of the matrix products of each kind of layer; see `flops`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_transformers.layers import (
    DisentangledAttention,
    EndTokenPooler,
    FirstTokenPooler,
    MultiHeadAttention,
    PositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.char_cnn import CharacterCNN, Highway
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.hierarchical_softmax import HierarchicalSoftmax
from keras_transformers.layers.memory.bands import keys_met
from keras_transformers.layers.patches import ClassToken, PatchEmbedding
from keras_transformers.layers.recurrent.attention import RnnAttention
from keras_transformers.layers.recurrent.cells import Recurrent
from keras_transformers.layers.recurrent.decoder import RecurrentDecoder
from keras_transformers.layers.recurrent.encoder import RecurrentEncoder

Rule = Callable[..., int]  # (layer, *arguments of its call) -> operations

# Layers whose matrices multiply nothing.
WITHOUT_PRODUCTS = (keras.layers.Embedding, PositionEmbedding, ClassToken)


def _dense(layer: Any, inputs: Any) -> int:
    return 2 * math.prod(inputs.shape[:-1]) * math.prod(layer.kernel.shape)


def _pooler(layer: FirstTokenPooler, inputs: Any, positions: Any = None) -> int:
    num_vectors = inputs.shape[0] if positions is None else math.prod(positions.shape)
    return 2 * num_vectors * math.prod(layer.kernel.shape)


def _end_pooler(layer: EndTokenPooler, inputs: Any, *_: Any) -> int:
    return 2 * inputs.shape[0] * math.prod(layer.kernel.shape)


def _token_embedding(layer: TokenEmbedding, inputs: Any, reverse: bool = False) -> int:
    if not reverse:
        return 0
    return 2 * math.prod(inputs.shape[:-1]) * layer.hidden_dim * layer.vocabulary_size


def _patches(layer: PatchEmbedding, images: Any) -> int:
    num_patches = math.prod(layer.compute_output_spec(images).shape[:2])
    return 2 * num_patches * math.prod(layer.kernel.shape)


def _convolution(layer: Any, inputs: Any) -> int:
    num_places = math.prod(layer.compute_output_shape(inputs.shape)) // layer.filters
    return 2 * num_places * math.prod(layer.kernel.shape)


def _attention(layer: MultiHeadAttention, query: Any, value: Any = None, **_: Any) -> int:
    value = query if value is None else value
    denses = (layer.query, query), (layer.key, value), (layer.value, value)
    projections = sum(_dense(dense, inputs) for dense, inputs in denses)
    batch, query_length, _features = query.shape
    output = 2 * batch * query_length * math.prod(layer.output_projection.kernel.shape)
    # Scores and weighted sums of values, each over the width of all heads together.
    width = layer.num_heads * layer.head_dim
    keys = value.shape[1] if value is not query else keys_met(layer.reach, query_length)
    products = 4 * batch * query_length * keys * width
    if isinstance(layer, DisentangledAttention):
        distances = query_length + keys
        vectors = 2 * (2 * keys + 1) * math.prod(layer.key.kernel.shape)
        products += 2 * batch * distances * width * layer.content_to_position * query_length
        products += 2 * batch * distances * width * layer.position_to_content * keys
        products += layer.num_terms * vectors
    return projections + output + products


def _feed_forward(layer: FeedForward, inputs: Any) -> int:
    positions = math.prod(inputs.shape[:-1])
    matrices = 3 if layer.gated else 2
    return 2 * matrices * positions * layer.hidden_dim * layer.intermediate_dim


def _block(layer: TransformerBlock, inputs: Any, encoder_output: Any = None, **_: Any) -> int:
    outputs = layer.compute_output_spec(inputs)
    if outputs.shape == inputs.shape:
        flops = _attention(layer.self_attention, inputs)
    else:  # only what the head reads
        flops = _attention(layer.self_attention, outputs, inputs)
    flops += _feed_forward(layer.feed_forward, outputs)
    if layer.cross_attention is not None:
        flops += _attention(layer.cross_attention, inputs, encoder_output)
    return flops


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


def _keras_attention(
    layer: keras.layers.MultiHeadAttention, query: Any, value: Any, key: Any = None, **_: Any
) -> int:
    key = value if key is None else key
    pairs = (layer.query_dense, query), (layer.key_dense, key), (layer.value_dense, value)
    projections = sum(
        2 * math.prod(inputs.shape[:-1]) * math.prod(dense.kernel.shape) for dense, inputs in pairs
    )
    output = 2 * math.prod(query.shape[:-1]) * math.prod(layer.output_dense.kernel.shape)
    # Every place of a query, on all of its axes, sees those of the values on the attended axes.
    axes = layer.get_config()["attention_axes"] or range(1, len(value.shape) - 1)
    axes = [axes] if isinstance(axes, int) else axes
    scores = math.prod(query.shape[:-1]) * math.prod(value.shape[axis] for axis in axes)
    _features, heads, key_dim = layer.key_dense.kernel.shape
    value_dim = layer.value_dense.kernel.shape[-1]
    return projections + output + 2 * scores * heads * (key_dim + value_dim)


def _einsum_dense(layer: keras.layers.EinsumDense, inputs: Any) -> int:
    """Counts a product for every value of all indices together."""
    of_inputs, of_kernel = layer.equation.partition("->")[0].replace(" ", "").split(",")
    start, dots, end = of_inputs.partition("...")
    named = len(start) + len(end)
    shape = list(inputs.shape)
    rest = shape[len(start) : len(shape) - len(end)] if dots else []
    if named + len(rest) != len(shape):
        raise ValueError(f"layer {layer.name!r}: {layer.equation!r} does not fit {inputs.shape}")
    sizes = dict(zip(of_kernel.replace("...", ""), layer.kernel.shape, strict=False))
    sizes |= dict(
        zip(start + end, shape[: len(start)] + shape[len(shape) - len(end) :], strict=True)
    )
    return 2 * math.prod(rest) * math.prod(sizes.values())


# The first match wins: a pooler is also a dense layer.
RULES: dict[type, Rule] = {
    FirstTokenPooler: _pooler,
    EndTokenPooler: _end_pooler,
    keras.layers.Dense: _dense,
    keras.layers.EinsumDense: _einsum_dense,
    keras.layers.MultiHeadAttention: _keras_attention,
    TokenEmbedding: _token_embedding,
    PatchEmbedding: _patches,
    keras.layers.Conv1D: _convolution,
    keras.layers.Conv2D: _convolution,
    keras.layers.Conv3D: _convolution,
    MultiHeadAttention: _attention,
    FeedForward: _feed_forward,
    TransformerBlock: _block,
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
}
