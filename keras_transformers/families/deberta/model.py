"""DeBERTa v2 and v3: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention".

BERT's layers whose scores also compare contents with distances between tokens; mostly without
positions and segments in the embeddings, and without a pooler. `with_pooler` adds the layer that
Hugging Face puts between the encoder and a classifier: a dense layer with gelu on the first token.
"""

import functools
import inspect
from typing import Any, Literal

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    DisentangledAttention,
    DistanceEmbedding,
    Embedding,
    FeedForward,
    PositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.layers.norms import norm_layer
from keras_transformers.models.entry import Entry, named_factory
from keras_transformers.models.stack import embedded, num_block_parameters, with_new_pooler

__all__ = ["SIZES", "deberta", "num_parameters", "with_pooler"]

_PAPER_V2 = "He et al. 2020, https://arxiv.org/abs/2006.03654"
_PAPER_V3 = "He et al. 2021, https://arxiv.org/abs/2111.09543"

DistanceTerm = Literal["c2p", "p2c"]

SIZES: dict[str, dict[str, Any]] = {
    "deberta_v3_xsmall": {"num_layers": 12, "num_heads": 6, "hidden_dim": 384},
    "deberta_v3_small": {"num_layers": 6, "num_heads": 12, "hidden_dim": 768},
    "deberta_v3_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "deberta_v3_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
    "deberta_v2_xlarge": {
        "num_layers": 24,
        "num_heads": 24,
        "hidden_dim": 1536,
        "convolution_width": 3,
    },
    "deberta_v2_xxlarge": {
        "num_layers": 48,
        "num_heads": 24,
        "hidden_dim": 1536,
        "convolution_width": 3,
    },
}


def deberta(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int = 0,
    use_position_embedding: bool = False,
    distance_terms: tuple[DistanceTerm, ...] = ("c2p", "p2c"),
    max_distance: int = 512,
    num_buckets: int | None = 256,
    share_projections: bool = True,
    distance_norm: bool = True,
    convolution_width: int | None = None,
    convolution_activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-7,
    initializer_range: float = 0.02,
    name: str = "deberta",
) -> keras.Model:
    """Builds a DeBERTa encoder, of version 2 or 3.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of encoder layers, L (Hugging Face: num_hidden_layers).
        num_heads: number of attention heads (Hugging Face: num_attention_heads).
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the feed-forward networks; 4 H by default.
        max_sequence_length: the longest text in training, in tokens (Hugging Face:
            max_position_embeddings). Longer texts are accepted, but not with
            `use_position_embedding`.
        num_segments: number of segment embeddings; 0 for none (Hugging Face: type_vocab_size).
        use_position_embedding: whether learned positions are added to the embeddings (Hugging Face:
            position_biased_input).
        distance_terms: what is compared with the distance: the query's content ("c2p"), the key's
            ("p2c"), or both (Hugging Face: pos_att_type).
        max_distance: see `DistanceEmbedding`.
        num_buckets: see `DistanceEmbedding`.
        share_projections: see `DisentangledAttention`.
        distance_norm: whether the vectors of distances have a norm (Hugging Face: norm_rel_ebd).
        convolution_width: number of neighbouring tokens, odd, in a convolution beside the first
            block, as in version 2; None for none (Hugging Face: conv_kernel_size).
        convolution_activation: its activation (Hugging Face: conv_act).
        dropout: rate on the embeddings, on the vectors of distances and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        initializer_range: standard deviation of the matrices' initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 and `padding_mask` bool (batch, length), True
        at real tokens; with segments, also `segment_ids` int32 (batch, length). Output:
        `sequence_output` (batch, length, H).

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`, `distance_terms` is empty or has
            others than these two, `convolution_width` is even, or buckets that do not fit
            `max_distance`.

    Example:
        >>> model = deberta(
        ...     vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8, num_buckets=16
        ... )
        >>> model.count_params() == 100 * 8 + 16 + 32 * 8 + 16 + 2 * 872
        True
    """
    if not distance_terms or not {*distance_terms} <= {"c2p", "p2c"}:
        raise ValueError(f"distance_terms={distance_terms!r}: expected 'c2p', 'p2c' or both")
    if convolution_width is not None and convolution_width % 2 != 1:
        raise ValueError(f"convolution_width={convolution_width}: expected an odd number")
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    inputs = {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    padding_mask = inputs["padding_mask"]
    hidden = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )(inputs["token_ids"])
    if use_position_embedding:
        hidden = PositionEmbedding(
            max_sequence_length,
            embeddings_initializer=initializer.clone(),
            name="position_embedding",
        )(hidden)
    if num_segments:
        inputs["segment_ids"] = keras.Input((None,), dtype="int32", name="segment_ids")
        segments = Embedding(
            num_segments,
            hidden_dim,
            embeddings_initializer=initializer.clone(),
            name="segment_embedding",
        )(inputs["segment_ids"])
        hidden = keras.layers.Add(name="token_and_segment")([hidden, segments])
    hidden = embedded(hidden, dropout=dropout, norm_epsilon=norm_epsilon)
    distances = DistanceEmbedding(
        max_distance,
        hidden_dim,
        num_buckets=num_buckets,
        max_sequence_length=max_sequence_length,
        embeddings_initializer=initializer.clone(),
        name="distance_embedding",
    )(hidden)
    if distance_norm:
        distances = norm_layer("layer", norm_epsilon, name="distance_norm")(distances)
    for index in range(num_layers):
        block = TransformerBlock(
            DisentangledAttention(
                num_heads,
                hidden_dim,
                content_to_position="c2p" in distance_terms,
                position_to_content="p2c" in distance_terms,
                share_projections=share_projections,
                distance_dropout=dropout,
                attention_dropout=attention_dropout,
                kernel_initializer=initializer,
            ),
            FeedForward(
                intermediate_dim or 4 * hidden_dim,
                hidden_dim,
                activation=activation,
                kernel_initializer=initializer,
            ),
            norm_epsilon=norm_epsilon,
            dropout=dropout,
            name=f"encoder_layer_{index}",
        )
        outputs = block(hidden, attention_mask=padding_mask, distance_vectors=distances)
        if index == 0 and convolution_width is not None:
            convolved = _convolved(
                hidden,
                padding_mask,
                width=convolution_width,
                activation=convolution_activation,
                dropout=dropout,
                initializer=initializer,
            )
            outputs = keras.layers.Add(name="block_and_convolution")([outputs, convolved])
            outputs = norm_layer("layer", norm_epsilon, name="convolution_norm")(outputs)
        hidden = outputs
    return keras.Model(inputs=inputs, outputs={"sequence_output": hidden}, name=name)


def _convolved(
    hidden: Tensor,
    padding_mask: Tensor,
    *,
    width: int,
    activation: Activation,
    dropout: float,
    initializer: keras.initializers.Initializer,
) -> Tensor:
    """Returns a convolution over vectors (batch, length, H), to which padding adds nothing."""
    is_real = keras.ops.expand_dims(padding_mask, -1)  # (batch, length, 1)
    hidden = keras.ops.where(is_real, hidden, 0.0)
    hidden = keras.layers.Conv1D(
        hidden.shape[-1],
        width,
        padding="same",
        kernel_initializer=initializer.clone(),
        name="convolution",
    )(hidden)
    hidden = keras.layers.Dropout(dropout, name="convolution_dropout")(hidden)
    return keras.layers.Activation(activation_function(activation), name="convolution_activation")(
        hidden
    )


def with_pooler(encoder: keras.Model) -> keras.Model:
    """Adds `pooled_output` (batch, H): a new dense layer with gelu on the first token.

    Hugging Face: ContextPooler.
    """
    return with_new_pooler(encoder, activation_function("gelu"))  # regardless of the encoder's


def num_parameters(
    *,
    vocabulary_size: int = 128100,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int = 0,
    use_position_embedding: bool = False,
    distance_terms: tuple[DistanceTerm, ...] = ("c2p", "p2c"),
    max_distance: int = 512,
    num_buckets: int | None = 256,
    share_projections: bool = True,
    distance_norm: bool = True,
    convolution_width: int | None = None,
) -> int:
    """Computes the parameter count of `deberta` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    rows = vocabulary_size + num_segments + use_position_embedding * max_sequence_length
    rows += 2 * (num_buckets or max_distance)
    norms = 2 * h * (1 + distance_norm)
    layer = num_block_parameters(h, i)
    layer += 0 if share_projections else len(distance_terms) * (h * h + h)
    convolution = 0 if convolution_width is None else convolution_width * h * h + h + 2 * h
    return rows * h + norms + num_layers * layer + convolution


# Exact counts for V = 128,100.
_NUM_PARAMETERS = {
    "deberta_v3_xsmall": 70_682_112,
    "deberta_v3_small": 141_304_320,
    "deberta_v3_base": 183_831_552,
    "deberta_v3_large": 434_012_160,
    "deberta_v2_xlarge": 884_593_152,
    "deberta_v2_xxlarge": 1_564_549_632,
}
_COUNTED = inspect.signature(num_parameters).parameters


def _summary(name: str, size: dict[str, Any]) -> str:
    version = name.split("_")[1].removeprefix("v")
    return (
        f"DeBERTa {version} with {size['num_layers']} layers, {size['num_heads']} heads and width "
        f"{size['hidden_dim']}, with random weights."
    )


MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            deberta,
            name,
            {**size, "vocabulary_size": 128100},
            summary=_summary(name, size),
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER_V2 if "v2" in name else _PAPER_V3,
        symbols={"V": 128100, "H": size["hidden_dim"], "I": 4 * size["hidden_dim"]},
        count=functools.partial(
            num_parameters, **{key: value for key, value in size.items() if key in _COUNTED}
        ),
    )
    for name, size in SIZES.items()
}
