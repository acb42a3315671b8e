"""ALBERT: Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning".

BERT with two changes that save parameters: all layers are the same one, called repeatedly, and the
embeddings are narrower than the layer.
"""

import functools

import keras

from keras_transformers.layers import (
    Embedding,
    PositionEmbedding,
    RowDense,
    TokenEmbedding,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.models.entry import Entry, named_factory
from keras_transformers.models.stack import (
    embedded,
    encoder_block,
    num_block_parameters,
    pooled,
)

__all__ = ["SIZES", "albert", "num_parameters"]

_PAPER = "Lan et al. 2020, https://arxiv.org/abs/1909.11942"

SIZES: dict[str, dict[str, int]] = {
    "albert_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "albert_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
    "albert_xlarge": {"num_layers": 24, "num_heads": 16, "hidden_dim": 2048},
    "albert_xxlarge": {"num_layers": 12, "num_heads": 64, "hidden_dim": 4096},
}


def albert(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    embedding_dim: int = 128,
    max_sequence_length: int = 512,
    num_segments: int = 2,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation: Activation = "gelu_approximate",
    norm_epsilon: float = 1e-12,
    initializer_range: float = 0.02,
    name: str = "albert",
) -> keras.Model:
    """Builds an ALBERT encoder with its pooler.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: how often the layer is called (Hugging Face: num_hidden_layers).
        num_heads: number of attention heads, A (Hugging Face: num_attention_heads).
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the feed-forward network; 4 H by default.
        embedding_dim: width of the embeddings, E (Hugging Face: embedding_size).
        max_sequence_length: number of learned positions, P.
        num_segments: number of segment embeddings, T (Hugging Face: type_vocab_size).
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward network.
        norm_epsilon: added to the variance in every norm.
        initializer_range: standard deviation of the matrices' initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` and `segment_ids` int32 (batch, length),
        `padding_mask` bool (batch, length), True at real tokens. Outputs: `sequence_output`
        (batch, length, H), `pooled_output` (batch, H).

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`.

    Example:
        >>> model = albert(
        ...     vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=8, embedding_dim=4
        ... )
        >>> model.count_params() == (100 + 512 + 2) * 4 + 8 + (4 * 8 + 8) + 872 + 72
        True
    """
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    segment_ids = keras.Input((None,), dtype="int32", name="segment_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")

    token_vectors = TokenEmbedding(
        vocabulary_size,
        embedding_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )(token_ids)
    segment_vectors = Embedding(
        num_segments,
        embedding_dim,
        embeddings_initializer=initializer.clone(),
        name="segment_embedding",
    )(segment_ids)
    hidden = keras.layers.Add(name="token_and_segment")([token_vectors, segment_vectors])
    hidden = PositionEmbedding(
        max_sequence_length, embeddings_initializer=initializer.clone(), name="position_embedding"
    )(hidden)
    hidden = embedded(hidden, dropout=dropout, norm_epsilon=norm_epsilon)
    hidden = RowDense(
        hidden_dim, kernel_initializer=initializer.clone(), name="embeddings_project"
    )(hidden)
    layer = encoder_block(
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        dropout=dropout,
        attention_dropout=attention_dropout,
        activation=activation,
        norm_epsilon=norm_epsilon,
        initializer=initializer,
        name="encoder_layer",
    )
    for _ in range(num_layers):
        hidden = layer(hidden, attention_mask=padding_mask)
    return keras.Model(
        inputs={"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden, "pooled_output": pooled(hidden, initializer.clone())},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 30000,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    embedding_dim: int = 128,
    max_sequence_length: int = 512,
    num_segments: int = 2,
) -> int:
    """Computes the parameter count of `albert`, for any number of layers, without building it."""
    h, e = hidden_dim, embedding_dim
    embeddings = (vocabulary_size + max_sequence_length + num_segments) * e + 2 * e
    pooler = h * h + h
    return embeddings + (e * h + h) + num_block_parameters(h, intermediate_dim or 4 * h) + pooler


_NUM_PARAMETERS = {
    "albert_base": 11_683_584,
    "albert_large": 17_683_968,
    "albert_xlarge": 58_724_864,
    "albert_xxlarge": 222_595_584,
}
_PAPER_FIGURES = {
    "albert_base": "12M",
    "albert_large": "18M",
    "albert_xlarge": "60M",
    "albert_xxlarge": "235M",
}
_PAPER_NOTES = {
    "albert_xlarge": "the paper's figure is rounded to tens",
    "albert_xxlarge": "this is the count of the published checkpoint",
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            albert,
            name,
            {**size, "vocabulary_size": 30000},
            summary=f"ALBERT whose one layer of width {size['hidden_dim']} with "
            f"{size['num_heads']} heads is called {size['num_layers']} times, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES[name],
        paper_note=_PAPER_NOTES.get(name, ""),
        symbols={"V": 30000, "P": 512, "E": 128, "H": size["hidden_dim"]},
        count=functools.partial(num_parameters, hidden_dim=size["hidden_dim"]),
    )
    for name, size in SIZES.items()
}
