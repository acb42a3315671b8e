"""T5 1.0 and 1.1: Raffel et al. 2020, "Exploring the Limits of Transfer Learning ...".

The Transformer's encoder and decoder with relative positions, norms before each sub-layer that
only scale, and no biases. Version 1.1 has gated feed-forward networks and untied logits.
"""

import functools
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    FeedForward,
    MultiHeadAttention,
    PaddingMask,
    RelativePositionBias,
    RowDense,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.layers.norms import norm_layer
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "num_parameters", "t5"]

_PAPER = "Raffel et al. 2020, https://arxiv.org/abs/1910.10683"
V1_1: dict[str, Any] = {
    "activation": "gelu_approximate",
    "gated_feed_forward": True,
    "tied_logits": False,
}


def size_of(
    num_layers: int, num_heads: int, hidden_dim: int, intermediate_dim: int
) -> dict[str, Any]:
    """Returns the arguments of `t5` for as many encoder as decoder layers."""
    return {
        "num_encoder_layers": num_layers,
        "num_decoder_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
    }


SIZES: dict[str, dict[str, Any]] = {
    "t5_small": size_of(6, 8, 512, 2048),
    "t5_base": size_of(12, 12, 768, 3072),
    "t5_large": size_of(24, 16, 1024, 4096),
    "t5_v1_1_small": size_of(8, 6, 512, 1024) | V1_1,
    "t5_v1_1_base": size_of(12, 12, 768, 2048) | V1_1,
    "t5_v1_1_large": size_of(24, 16, 1024, 2816) | V1_1,
}


def t5(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    head_dim: int = 64,
    activation: Activation = "relu",
    gated_feed_forward: bool = False,
    tied_logits: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
    shared_position_bias: bool = True,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    norm_epsilon: float = 1e-6,
    pad_token_id: int = 0,
    name: str = "t5",
) -> Transformer:
    """Builds a T5, an encoder-decoder that turns text into text.

    The defaults are version 1.0. Version 1.1 has `activation="gelu_approximate"`,
    `gated_feed_forward=True` and `tied_logits=False`.

    Args:
        vocabulary_size: number of tokens, V, which sources and targets share.
        num_encoder_layers: number of encoder layers (Hugging Face: num_layers).
        num_decoder_layers: number of decoder layers.
        num_heads: number of attention heads.
        hidden_dim: width, H (Hugging Face: d_model).
        intermediate_dim: inner width of the feed-forward networks (Hugging Face: d_ff).
        head_dim: width of a head, independent of `hidden_dim` (Hugging Face: d_kv).
        activation: activation of the feed-forward networks.
        gated_feed_forward: whether these are gated; see `layers.FeedForward`.
        tied_logits: whether the logits use the token embeddings, scaled by hidden_dim**-0.5, or
            their own matrix.
        num_buckets: buckets of relative positions; see `layers.RelativePositionBias`.
        max_distance: all distances from this one on share a bucket.
        shared_position_bias: whether the layers of a side share their biases, or each has its own,
            as in UMT5.
        dropout: rate on the embeddings, in the feed-forward networks, on each sub-layer's output
            and after the last norms.
        attention_dropout: rate on the attention probabilities.
        norm_epsilon: added to the mean square in every norm.
        pad_token_id: id of the padding token of sources; no position attends to it.
        name: the model's name.

    Returns:
        A functional model. Inputs: `source_token_ids` int32 (batch, source) and
        `target_token_ids` int32 (batch, target), the targets shifted right, with the padding token
        as the start token. Output: `logits` float32 (batch, target, V), position i for the token
        after input i.

    Raises:
        ValueError: an unknown choice, or buckets that do not fit `max_distance`.

    Example:
        >>> model = t5(vocabulary_size=50, num_encoder_layers=1, num_decoder_layers=1,
        ...            num_heads=2, hidden_dim=8, intermediate_dim=16, head_dim=4)
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """

    def block(name: str, *, crosses: bool = False) -> TransformerBlock:
        initializer = keras.initializers.LecunNormal()

        def attention(*, use_causal_mask: bool = False) -> MultiHeadAttention:
            return MultiHeadAttention(
                num_heads,
                hidden_dim,
                head_dim=head_dim,
                use_causal_mask=use_causal_mask,
                scale_scores=False,
                attention_dropout=attention_dropout,
                use_bias=False,
                kernel_initializer=initializer,
            )

        self_attention = attention(use_causal_mask=crosses)
        cross = attention() if crosses else None
        feed_forward = FeedForward(
            intermediate_dim,
            hidden_dim,
            activation=activation,
            dropout=dropout,
            gated=gated_feed_forward,
            use_bias=False,
            kernel_initializer=initializer,
        )
        return TransformerBlock(
            self_attention,
            feed_forward,
            cross_attention=cross,
            norm="rms",
            norm_position="pre",
            norm_epsilon=norm_epsilon,
            dropout=dropout,
            name=name,
        )

    embedding = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        name="token_embedding",
    )

    def drop(hidden: Tensor, name: str) -> Tensor:
        return keras.layers.Dropout(dropout, name=name)(hidden)

    def position_biases(
        side: str, num_layers: int, hidden: Tensor, *, bidirectional: bool
    ) -> list[Tensor]:
        """Returns each layer's bias for the lengths of the embeddings."""

        def position_bias(owner: str) -> Tensor:
            return RelativePositionBias(
                num_buckets,
                num_heads,
                max_distance=max_distance,
                bidirectional=bidirectional,
                embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
                name=f"{owner}_position_bias",
            )(hidden)

        if shared_position_bias:
            return [position_bias(side)] * num_layers
        return [position_bias(f"{side}_layer_{index}") for index in range(num_layers)]

    source_token_ids = keras.Input((None,), dtype="int32", name="source_token_ids")
    target_token_ids = keras.Input((None,), dtype="int32", name="target_token_ids")
    source_padding_mask = PaddingMask(pad_token_id, name="source_padding_mask")(source_token_ids)

    encoded = drop(embedding(source_token_ids), "source_embeddings_dropout")
    biases = position_biases("encoder", num_encoder_layers, encoded, bidirectional=True)
    for index, bias in enumerate(biases):
        encoded = block(f"encoder_layer_{index}")(
            encoded, attention_mask=source_padding_mask, attention_bias=bias
        )
    encoded = norm_layer("rms", norm_epsilon, name="encoder_norm")(encoded)
    encoded = drop(encoded, "encoder_dropout")

    hidden = drop(embedding(target_token_ids), "target_embeddings_dropout")
    biases = position_biases("decoder", num_decoder_layers, hidden, bidirectional=False)
    for index, bias in enumerate(biases):
        hidden = block(f"decoder_layer_{index}", crosses=True)(
            hidden, encoded, attention_bias=bias, cross_attention_mask=source_padding_mask
        )
    hidden = norm_layer("rms", norm_epsilon, name="decoder_norm")(hidden)
    hidden = drop(hidden, "decoder_dropout")

    if tied_logits:
        hidden = keras.layers.Rescaling(hidden_dim**-0.5, name="logits_scale")(hidden)
        logits = embedding(hidden, reverse=True)
    else:
        logits = RowDense(
            vocabulary_size,
            use_bias=False,
            kernel_initializer="lecun_normal",
            dtype="float32",
            name="output_projection",
        )(hidden)
    return Transformer(
        inputs={"source_token_ids": source_token_ids, "target_token_ids": target_token_ids},
        outputs={"logits": logits},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 32128,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    head_dim: int = 64,
    gated_feed_forward: bool = False,
    tied_logits: bool = True,
    num_buckets: int = 32,
    shared_position_bias: bool = True,
) -> int:
    """Computes the parameter count of `t5` with these arguments, without building it."""
    d = hidden_dim
    attention = 4 * d * num_heads * head_dim
    feed_forward = (3 if gated_feed_forward else 2) * d * intermediate_dim
    encoder = num_encoder_layers * (attention + feed_forward + 2 * d) + d
    decoder = num_decoder_layers * (2 * attention + feed_forward + 3 * d) + d
    matrices = (1 if tied_logits else 2) * vocabulary_size * d
    num_biases = 2 if shared_position_bias else num_encoder_layers + num_decoder_layers
    return matrices + encoder + decoder + num_biases * num_buckets * num_heads


_NUM_PARAMETERS = {
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_v1_1_small": 76_961_152,
    "t5_v1_1_base": 247_577_856,
    "t5_v1_1_large": 783_150_080,
}
# Section 3.7 of the paper, which precedes version 1.1.
_PAPER_FIGURES = {"t5_small": "60M", "t5_base": "220M", "t5_large": "770M"}
_PAPER_NOTES = {"t5_large": "the released T5 Large has fewer parameters than the printed figure"}


def t5_entry(
    name: str,
    size: Mapping[str, Any],
    *,
    title: str,
    paper: str,
    exact: int,
    vocabulary_size: int,
    paper_figure: str = "",
    paper_note: str = "",
) -> Entry:
    """Returns the entry of a named model that `t5` builds.

    Args:
        name: the name of the factory and the entry.
        size: arguments of `t5`.
        title: how the factory's docstring calls the model.
        paper: citation and address.
        exact: the exact parameter count.
        vocabulary_size: number of tokens.
        paper_figure: see `Entry`.
        paper_note: see `Entry`.
    """
    arguments = {**size, "vocabulary_size": vocabulary_size}
    return Entry(
        name=name,
        factory=named_factory(
            t5,
            name,
            arguments,
            summary=f"{title} with {size['num_encoder_layers']} + {size['num_decoder_layers']} "
            f"layers and width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=exact,
        paper=paper,
        paper_figure=paper_figure,
        paper_note=paper_note,
        symbols={"V": vocabulary_size, "H": size["hidden_dim"], "I": size["intermediate_dim"]},
        count=functools.partial(
            num_parameters, **{key: arguments[key] for key in arguments if key != "activation"}
        ),
    )


MODELS = {
    name: t5_entry(
        name,
        size,
        title=f"T5 {'1.0' if name in _PAPER_FIGURES else '1.1'}",
        paper=_PAPER,
        exact=_NUM_PARAMETERS[name],
        vocabulary_size=32128,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=_PAPER_NOTES.get(name, ""),
    )
    for name, size in SIZES.items()
}
