"""Finds a model's parts by the types of its layers, never by their names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import keras

from keras_transformers.dependencies.private_api import calls
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    AddBias,
    DistanceEmbedding,
    EndTokenPooler,
    FirstTokenPooler,
    PaddingMask,
    PositionEmbedding,
    RelativePositionBias,
    RowEmbedding,
    ShiftRight,
    SinusoidalPositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)

__all__ = ["Anatomy", "anatomy", "only"]

LayerT = TypeVar("LayerT", bound=keras.layers.Layer)
POSITIONS = (PositionEmbedding, SinusoidalPositionEmbedding)  # layers that add positions to vectors
_PLACES = (*POSITIONS, RelativePositionBias, DistanceEmbedding)
_POOLERS = (FirstTokenPooler, EndTokenPooler)
_NORMS = (keras.layers.LayerNormalization, keras.layers.RMSNormalization)
_REMEDIES = {
    "token_embedding": "embed its tokens with a layers.TokenEmbedding",
    "blocks": "build it from layers.TransformerBlock, as in keras_transformers.bert_base()",
    "projection": "end it with a projection to the logits of the vocabulary",
    "encoder": "use an encoder-decoder, such as transformer_tiny",
}


@dataclass(frozen=True)
class Anatomy:
    """The parts of a model; for an encoder-decoder, those of the decoder.

    Attributes:
        token_embedding: embeds token ids, such as a `TokenEmbedding`; None in a model of images or
            characters.
        positions: the layers for the positions of tokens, in the order of the graph: position
            embeddings, attention biases or vectors by distance, rotary positions; () for none.
        blocks: the Transformer blocks in the order of their calls. A block that is called several
            times, as in ALBERT, is listed as many times.
        hidden: the symbolic vectors (batch, length, hidden) that the first block reads, and those
            that each call returns.
        final_norm: the norm of the last block's vectors; None where the blocks end with norms.
        projected: the symbolic vectors that the projection reads; None without one.
        projection: maps vectors to the logits of the vocabulary: the token embedding, or a dense
            layer; None in a model that does not predict tokens.
        pooler: the dense layer on the first or the end token's vector; None for none.
        padding: finds padding by its token; None in models with an input for the padding mask.
        encoder: the `Anatomy` of an encoder-decoder's encoder; None in other models.
    """

    token_embedding: keras.layers.Layer = None
    positions: tuple[keras.layers.Layer, ...] = ()
    blocks: tuple[TransformerBlock, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    final_norm: keras.layers.Layer = None
    projected: Tensor = None
    projection: keras.layers.Layer = None
    pooler: FirstTokenPooler | EndTokenPooler | None = None
    padding: PaddingMask | None = None
    encoder: Any = None

    @property
    def max_sequence_length(self) -> int | None:
        """The number of positions; None where nothing limits it, as with rotary positions."""
        limits = (x.max_sequence_length for x in self.positions if isinstance(x, POSITIONS))
        return min(limits, default=None)

    @property
    def trained_length(self) -> int | None:
        """The longest text in training, if the layers of positions record it."""
        lengths = (getattr(layer, "max_sequence_length", None) for layer in self.positions)
        return min((length for length in lengths if length is not None), default=None)


class _Call(NamedTuple):
    layer: keras.layers.Layer
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


def anatomy(model: keras.Model, *needed: str) -> Anatomy:
    """Finds the parts of a functional model.

    Args:
        model: a model from this package's builders, or one with the same kinds of layers, under any
            names. An encoder-decoder is recognized by its input `target_token_ids`, or by the
            `ShiftRight` of one text for both sides: the layers that depend on it are the decoder.
        needed: attributes of `Anatomy` that the caller needs, such as "blocks".

    Raises:
        ValueError: the model lacks a part that is needed, or has no graph.

    Example:
        >>> from keras_transformers.families.gpt.model import gpt
        >>> parts = anatomy(gpt(vocabulary_size=9, num_layers=2, num_heads=2, hidden_dim=8))
        >>> len(parts.blocks), parts.max_sequence_length, parts.final_norm.name
        (2, 1024, 'final_norm')
        >>> parts.projection is parts.token_embedding
        True
    """
    if not isinstance(model, keras.Model) or not hasattr(model, "input"):
        raise ValueError(
            f"{type(model).__name__} has no graph of layers: pass a functional model, such as "
            "keras_transformers.bert_base()"
        )
    inputs: dict[str, Tensor] = model.input if isinstance(model.input, dict) else {}
    graph = [_Call(*call) for call in calls(model)]
    token_ids, targets = inputs.get("token_ids"), inputs.get("target_token_ids")
    shifted = [call.outputs[0] for call in graph if isinstance(call.layer, ShiftRight)]
    if targets is not None or shifted:
        decoded = shifted[0] if targets is None else targets
        decoder = list(_descending(graph, decoded))
        rest = [call for call in graph if not any(call is other for other in decoder)]
        encoder = _parts(model, rest, inputs.get("source_token_ids", token_ids))
        parts = _parts(model, decoder, decoded, encoder)
    else:
        parts = _parts(model, graph, token_ids)
    for name in needed:
        if getattr(parts, name) in (None, ()):
            part = name.replace("_", " ")
            raise ValueError(f"model {model.name!r} has no {part}: {_REMEDIES[name]}")
    return parts


def only(model: keras.Model, kind: type[LayerT]) -> LayerT:
    """Returns the model's only layer of a kind, such as a `PatchEmbedding`.

    Raises:
        ValueError: the model has no such layer, or several.
    """
    layers = [layer for layer in model.layers if isinstance(layer, kind)]
    if len(layers) != 1:
        raise ValueError(
            f"model {model.name!r} has {len(layers) or 'no'} layers of the kind {kind.__name__}: "
            "pass a model with exactly one"
        )
    return layers[0]


def block_shape(block: TransformerBlock) -> dict[str, Any]:
    """Returns a block's sizes, rates and choices, under the builders' names for them."""
    attention, feed_forward = block.self_attention, block.feed_forward
    return {
        "num_heads": attention.num_heads,
        "hidden_dim": attention.hidden_dim,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
        "intermediate_dim": feed_forward.intermediate_dim,
        "activation": feed_forward.activation,
        "gated_feed_forward": feed_forward.gated,
        "use_attention_bias": attention.use_bias,
        "dropout": block.dropout,
        "attention_dropout": attention.attention_dropout,
        "feed_forward_dropout": feed_forward.dropout_rate,
        "norm_position": block.norm_position,
        "norm_epsilon": block.norm_epsilon,
    }


def _descending(graph: Sequence[_Call], tensor: Tensor) -> Iterator[_Call]:
    """Yields the calls whose results depend on a tensor, in the order of the graph."""
    reached = {id(tensor)}
    for call in graph:
        if not reached.isdisjoint(map(id, call.inputs)):
            reached.update(map(id, call.outputs))
            yield call


def _parts(
    model: keras.Model, graph: Sequence[_Call], token_ids: Tensor, encoder: Anatomy | None = None
) -> Anatomy:
    """Finds the parts among these calls of a model's graph."""
    in_blocks = [call for call in graph if isinstance(call.layer, TransformerBlock)]
    blocks = tuple(call.layer for call in in_blocks)
    hidden = [*(call.inputs[0] for call in in_blocks[:1]), *(call.outputs[0] for call in in_blocks)]
    after = [call for call in graph if any(x is y for x in call.inputs for y in hidden[-1:])]
    positions = [call.layer for call in graph if isinstance(call.layer, _PLACES)]
    positions += [b.self_attention.positions for b in blocks if b.self_attention.positions]
    token_embedding = _token_embedding(graph, token_ids)
    size = getattr(token_embedding, "input_dim", None)
    projection, projected = _projection(
        model, graph, size, decodes=encoder is not None and "target_token_ids" in model.input
    )
    return Anatomy(
        token_embedding=token_embedding,
        positions=tuple({id(layer): layer for layer in positions}.values()),
        blocks=blocks,
        hidden=tuple(hidden),
        final_norm=_first(after, _NORMS),
        projected=projected,
        projection=projection,
        pooler=_first(graph, _POOLERS),
        padding=_first(graph, PaddingMask),
        encoder=encoder,
    )


def _first(graph: Sequence[_Call], kind: type | tuple[type, ...]) -> Any:
    return next((call.layer for call in graph if isinstance(call.layer, kind)), None)


def _token_embedding(graph: Sequence[_Call], token_ids: Tensor) -> keras.layers.Layer:
    """Returns the layer that embeds tokens; of Keras' own layers, only one that reads the input."""
    embedding = [
        call
        for call in graph
        if isinstance(call.layer, keras.layers.Embedding) and "int" in call.inputs[0].dtype
    ]
    ours = _first(embedding, (TokenEmbedding, RowEmbedding))
    return ours or _first([call for call in embedding if call.inputs[0] is token_ids], object)


def _projection(
    model: keras.Model, graph: Sequence[_Call], size: int | None, *, decodes: bool
) -> tuple[Any, Any]:
    """Returns the layer that makes the vocabulary's logits, and the vectors that it reads.

    This may be a dense layer of the vocabulary's size, or one at the end of a decoder.
    """
    made_by = {id(output): call for call in graph for output in call.outputs}
    for output in keras.tree.flatten(model.output):
        call = made_by.get(id(output))
        if call is not None and isinstance(call.layer, AddBias):
            call = made_by.get(id(call.inputs[0]))
        if call is None:
            continue
        layer = call.layer
        is_dense = isinstance(layer, keras.layers.Dense) and not isinstance(layer, _POOLERS)
        if isinstance(layer, TokenEmbedding) or (is_dense and (decodes or layer.units == size)):
            return layer, call.inputs[0]
    return None, None
