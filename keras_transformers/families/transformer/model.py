"""The encoder-decoder Transformer of Vaswani et al. 2017, "Attention Is All You Need"."""

import functools
from typing import Any, Literal, get_args

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    AddBias,
    FeedForward,
    MultiHeadAttention,
    PaddingMask,
    PositionEmbedding,
    RelativePositionBias,
    RotaryPositions,
    RowDense,
    SinusoidalPositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.layers.embeddings import WeightTying, token_embeddings
from keras_transformers.layers.norms import NormPosition
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "num_parameters", "transformer"]

Positions = Literal[
    "sinusoidal",
    "sinusoidal_halves",
    "sinusoidal_opennmt",
    "sinusoidal_fairseq",
    "learned",
    "relative",
    "rotary",
]
# The options of SinusoidalPositionEmbedding.
_SINUSOIDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "sinusoidal_halves": {"interleaved": False},
    "sinusoidal_opennmt": {"interleaved": False, "first_position": 1, "endpoint": True},
    "sinusoidal_fairseq": {"interleaved": False, "first_position": 2, "endpoint": True},
}

NUM_BUCKETS = 32  # buckets of relative positions, as in T5

_PAPER = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762"

SIZES: dict[str, dict[str, Any]] = {
    "transformer_base": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "num_heads": 8,
        "hidden_dim": 512,
        "intermediate_dim": 2048,
    },
    "transformer_big": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "num_heads": 16,
        "hidden_dim": 1024,
        "intermediate_dim": 4096,
    },
    "transformer_tiny": {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "num_heads": 4,
        "hidden_dim": 128,
        "intermediate_dim": 256,
    },
}


def transformer(
    *,
    vocabulary_size: int,
    target_vocabulary_size: int | None = None,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    weight_tying: WeightTying = "all",
    positions: Positions = "sinusoidal",
    first_position: int = 0,
    scale_embeddings: bool = True,
    use_embeddings_norm: bool = False,
    norm_position: NormPosition = "post",
    activation: Activation = "relu",
    use_attention_bias: bool = True,
    use_output_bias: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    feed_forward_dropout: float = 0.1,
    norm_epsilon: float = 1e-6,
    pad_token_id: int = 0,
    name: str = "transformer",
) -> Transformer:
    """Builds an encoder-decoder Transformer.

    Args:
        vocabulary_size: number of source tokens, V.
        target_vocabulary_size: number of target tokens; `vocabulary_size` by default.
        num_encoder_layers: number of encoder layers, the paper's N.
        num_decoder_layers: number of decoder layers, the paper's N.
        num_heads: number of attention heads, the paper's h.
        hidden_dim: width, the paper's d_model.
        intermediate_dim: inner width of the feed-forward networks, the paper's d_ff.
        max_sequence_length: the longest source or target; relative and rotary positions have no
            limit.
        weight_tying: "all": one matrix for source embeddings, target embeddings and logits (the
            paper); "decoder": targets and logits share one; "none": three matrices.
        positions: "sinusoidal" (the paper); "sinusoidal_halves", with all sines before the cosines
            (Marian); "sinusoidal_opennmt", the same from position 1 on and with slower waves
            (OpenNMT-tf); "sinusoidal_fairseq", those from position 2 on (M2M-100); "learned";
            "relative", a bias on the attention scores for each distance, as in T5, one for all
            layers of a stack; or "rotary", which turns the queries and keys of self-attention (Su
            et al. 2021, arXiv:2104.09864).
        first_position: row of the matrix of learned positions for the first token; 2 in BART.
        scale_embeddings: whether token embeddings are multiplied by sqrt(hidden_dim) (the paper).
        use_embeddings_norm: whether the sum of token and position embeddings is normalized (BART).
        norm_position: "post" (the paper), or "pre", which adds a norm after each stack.
        activation: activation of the feed-forward networks.
        use_attention_bias: whether the attention projections have biases; tensor2tensor's do not.
        use_output_bias: whether the logits have a bias.
        dropout: rate on the embeddings and on each sub-layer's output (the paper's P_drop).
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        pad_token_id: id of the padding token of sources; no position attends to it.
        name: the model's name.

    Returns:
        A functional model. Inputs: `source_token_ids` int32 (batch, source) and
        `target_token_ids` int32 (batch, target), the targets shifted right. Output: `logits`
        float32 (batch, target, target vocabulary), position i for the token after input i.

    Raises:
        ValueError: an unknown choice, a `hidden_dim` that is not a multiple of `num_heads`, or
            `weight_tying="all"` with vocabularies of different sizes.

    Example:
        >>> model = transformer(vocabulary_size=50, num_encoder_layers=1, num_decoder_layers=1,
        ...                     num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """
    target_vocabulary_size = target_vocabulary_size or vocabulary_size
    check_positions(positions)
    source_embedding, target_embedding = token_embeddings(
        weight_tying,
        vocabulary_size,
        target_vocabulary_size,
        hidden_dim,
        is_scaled=scale_embeddings,
    )
    layer_arguments: dict[str, Any] = {
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "dropout": dropout,
        "attention_dropout": attention_dropout,
        "feed_forward_dropout": feed_forward_dropout,
        "activation": activation,
        "norm_position": norm_position,
        "norm_epsilon": norm_epsilon,
        "use_attention_bias": use_attention_bias,
        "positions": positions,
    }

    source_token_ids = keras.Input((None,), dtype="int32", name="source_token_ids")
    target_token_ids = keras.Input((None,), dtype="int32", name="target_token_ids")
    source_padding_mask = PaddingMask(pad_token_id, name="source_padding_mask")(source_token_ids)

    encoded = _embedded(
        "source",
        source_embedding(source_token_ids),
        positions=positions,
        first_position=first_position,
        max_sequence_length=max_sequence_length,
        norm_epsilon=norm_epsilon if use_embeddings_norm else None,
        dropout=dropout,
    )
    bias = _position_bias("encoder", encoded, positions, num_heads)
    for index in range(num_encoder_layers):
        layer = transformer_block(f"encoder_layer_{index}", **layer_arguments)
        encoded = layer(encoded, attention_mask=source_padding_mask, attention_bias=bias)
    if norm_position == "pre":
        encoded = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="encoder_norm")(
            encoded
        )
    logits = decoded(
        target_token_ids,
        encoded,
        source_padding_mask,
        target_embedding,
        num_layers=num_decoder_layers,
        layer_arguments=layer_arguments,
        max_sequence_length=max_sequence_length,
        first_position=first_position,
        use_embeddings_norm=use_embeddings_norm,
        tied_logits=weight_tying != "none",
        use_output_bias=use_output_bias,
    )
    return Transformer(
        inputs={"source_token_ids": source_token_ids, "target_token_ids": target_token_ids},
        outputs={"logits": logits},
        name=name,
    )


def transformer_block(
    name: str,
    *,
    crosses: bool = False,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    dropout: float,
    attention_dropout: float,
    feed_forward_dropout: float,
    activation: Activation,
    norm_position: NormPosition,
    norm_epsilon: float,
    positions: Positions,
    use_attention_bias: bool = True,
) -> TransformerBlock:
    """Makes a layer of the encoder or, if it `crosses`, of the decoder; see `transformer`."""
    initializer = keras.initializers.GlorotUniform()

    def attention(**of_self_attention: Any) -> MultiHeadAttention:
        return MultiHeadAttention(
            num_heads,
            hidden_dim,
            attention_dropout=attention_dropout,
            use_bias=use_attention_bias,
            kernel_initializer=initializer,
            **of_self_attention,
        )

    places = RotaryPositions() if positions == "rotary" else None
    self_attention = attention(use_causal_mask=crosses, positions=places)
    cross = attention() if crosses else None
    feed_forward = FeedForward(
        intermediate_dim,
        hidden_dim,
        activation=activation,
        dropout=feed_forward_dropout,
        kernel_initializer=initializer,
    )
    return TransformerBlock(
        self_attention,
        feed_forward,
        cross_attention=cross,
        norm_position=norm_position,
        norm_epsilon=norm_epsilon,
        dropout=dropout,
        name=name,
    )


def check_positions(positions: str) -> None:
    """Raises ValueError for an unknown kind of positions."""
    if positions not in get_args(Positions):
        names = ", ".join(map(repr, get_args(Positions)))
        raise ValueError(f"positions={positions!r} is unknown: use one of {names}")


def decoded(
    target_token_ids: Tensor,
    encoded: Tensor,
    source_padding_mask: Tensor,
    embedding: TokenEmbedding,
    *,
    num_layers: int,
    layer_arguments: dict[str, Any],
    max_sequence_length: int,
    first_position: int = 0,
    use_embeddings_norm: bool = False,
    tied_logits: bool,
    use_output_bias: bool,
) -> Tensor:
    """Decodes targets from an encoder's vectors: the decoder's half of `transformer`.

    Args:
        target_token_ids: the targets shifted right, int32 (batch, target).
        encoded: the encoder's vectors (batch, source, hidden).
        source_padding_mask: bool (batch, source), True at real tokens.
        embedding: the embedding of the targets' tokens; with `tied_logits`, also of the logits.
        num_layers: number of decoder layers.
        layer_arguments: the shape of each block; see `transformer_block`.
        max_sequence_length: the longest target.
        first_position: row of the matrix of learned positions for the first token.
        use_embeddings_norm: whether the embeddings are normalized.
        tied_logits: whether the logits use the embeddings' matrix.
        use_output_bias: whether the logits have a bias.

    Returns:
        Logits (batch, target, target vocabulary), float32.
    """
    positions = layer_arguments["positions"]
    hidden = _embedded(
        "target",
        embedding(target_token_ids),
        positions=positions,
        first_position=first_position,
        max_sequence_length=max_sequence_length,
        norm_epsilon=layer_arguments["norm_epsilon"] if use_embeddings_norm else None,
        dropout=layer_arguments["dropout"],
    )
    bias = _position_bias("decoder", hidden, positions, layer_arguments["num_heads"])
    for index in range(num_layers):
        layer = transformer_block(f"decoder_layer_{index}", crosses=True, **layer_arguments)
        hidden = layer(
            hidden, encoded, attention_bias=bias, cross_attention_mask=source_padding_mask
        )
    if layer_arguments["norm_position"] == "pre":
        epsilon = layer_arguments["norm_epsilon"]
        hidden = keras.layers.LayerNormalization(epsilon=epsilon, name="decoder_norm")(hidden)
    if tied_logits:
        logits = embedding(hidden, reverse=True)
    else:
        logits = RowDense(
            embedding.vocabulary_size, use_bias=False, dtype="float32", name="output_projection"
        )(hidden)
    return AddBias(dtype="float32", name="logits")(logits) if use_output_bias else logits


def _embedded(
    side: str,
    vectors: Tensor,
    *,
    positions: Positions,
    first_position: int,
    max_sequence_length: int,
    norm_epsilon: float | None,
    dropout: float,
) -> Tensor:
    """Adds positions and dropout to the tokens' vectors (batch, length, hidden) of one side.

    With a `norm_epsilon`, it also normalizes the sums.
    """
    name = f"{side}_position_embedding"
    if positions == "learned":
        vectors = PositionEmbedding(max_sequence_length, first_position=first_position, name=name)(
            vectors
        )
    elif positions in _SINUSOIDS:
        vectors = SinusoidalPositionEmbedding(
            max_sequence_length, **_SINUSOIDS[positions], name=name
        )(vectors)
    if norm_epsilon is not None:
        name = f"{side}_embeddings_norm"
        vectors = keras.layers.LayerNormalization(epsilon=norm_epsilon, name=name)(vectors)
    return keras.layers.Dropout(dropout, name=f"{side}_embeddings_dropout")(vectors)


def _position_bias(
    stack: str, hidden: Tensor, positions: Positions, num_heads: int
) -> Tensor | None:
    """Returns the bias on the attention scores of a stack; None unless positions are relative."""
    if positions != "relative":
        return None
    return RelativePositionBias(
        NUM_BUCKETS,
        num_heads,
        bidirectional=stack == "encoder",
        name=f"{stack}_position_bias",
    )(hidden)


def num_parameters(
    *,
    vocabulary_size: int = 37000,
    target_vocabulary_size: int | None = None,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    weight_tying: WeightTying = "all",
    positions: Positions = "sinusoidal",
    first_position: int = 0,
    use_embeddings_norm: bool = False,
    norm_position: NormPosition = "post",
    use_attention_bias: bool = True,
    use_output_bias: bool = False,
) -> int:
    """Computes the parameter count of `transformer` with these arguments, without building it."""
    d, f = hidden_dim, intermediate_dim
    sources, targets = vocabulary_size, target_vocabulary_size or vocabulary_size
    attention = 4 * d * d + (4 * d if use_attention_bias else 0)
    feed_forward = 2 * d * f + f + d
    encoder_layer = attention + feed_forward + 2 * (2 * d)
    decoder_layer = 2 * attention + feed_forward + 3 * (2 * d)
    rows = {"all": sources, "decoder": sources + targets, "none": sources + 2 * targets}
    rows_of_positions = first_position + max_sequence_length
    placed = {"learned": rows_of_positions * d, "relative": NUM_BUCKETS * num_heads}
    return (
        num_encoder_layers * encoder_layer
        + num_decoder_layers * decoder_layer
        + (4 * d if norm_position == "pre" else 0)
        + (4 * d if use_embeddings_norm else 0)
        + rows[weight_tying] * d
        + 2 * placed.get(positions, 0)
        + (targets if use_output_bias else 0)
    )


# Exact counts for V = 37,000, one shared matrix, attention biases, post-norm.
_NUM_PARAMETERS = {
    "transformer_base": 63_082_496,
    "transformer_big": 214_245_376,
    "transformer_tiny": 6_061_056,
}
_PAPER_FIGURES = {"transformer_base": "65M", "transformer_big": "213M"}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            transformer,
            name,
            {**size, "vocabulary_size": 37000},
            summary=f"A Transformer with {size['num_encoder_layers']} + "
            f"{size['num_decoder_layers']} layers and width {size['hidden_dim']}, with random "
            "weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=(
            "no vocabulary of about 37,000 with one shared matrix gives the printed figure"
            if name in _PAPER_FIGURES
            else ""
        ),
        symbols={"V": 37000, "H": size["hidden_dim"], "I": size["intermediate_dim"]},
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
