"""BERT: Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers".

The named sizes are the paper's two and four of the 24 compact ones of Turc et al. 2019, "Well-Read
Students Learn Better", from `compact_size`; `bert` builds any other size, such as MiniLM's.
A model is an encoder with its pooler; `keras_transformers.heads` adds a task on top.
"""

import functools
import re

import keras

from keras_transformers.layers import (
    Embedding,
    IndexedPositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.models.entry import Entry, named_factory
from keras_transformers.models.stack import (
    embedded,
    encoded,
    num_block_parameters,
    pooled,
)

__all__ = ["SIZES", "bert", "num_parameters"]

_PAPER = "Devlin et al. 2018, https://arxiv.org/abs/1810.04805"
_COMPACT_PAPER = "Turc et al. 2019, https://arxiv.org/abs/1908.08962"


def compact_size(num_layers: int, hidden_dim: int) -> dict[str, int]:
    """Returns the size of one of the 24 compact models of Turc et al., as arguments of `bert`.

    Args:
        num_layers: 2, 4, 6, 8, 10 or 12.
        hidden_dim: 128, 256, 512 or 768.

    Raises:
        ValueError: there is no such compact model.

    Example:
        >>> bert(vocabulary_size=30522, **compact_size(4, 128)).count_params()
        4782464
    """
    if num_layers not in range(2, 13, 2) or hidden_dim not in (128, 256, 512, 768):
        raise ValueError(
            f"num_layers={num_layers}, hidden_dim={hidden_dim}: the compact models have 2, 4, 6, "
            "8, 10 or 12 layers of width 128, 256, 512 or 768; `bert` builds any other size"
        )
    return {"num_layers": num_layers, "num_heads": hidden_dim // 64, "hidden_dim": hidden_dim}


SIZES: dict[str, dict[str, int]] = {
    "bert_tiny": compact_size(2, 128),
    "bert_mini": compact_size(4, 256),
    "bert_small": compact_size(4, 512),
    "bert_medium": compact_size(8, 512),
    "bert_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "bert_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
}


def bert(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int = 2,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    initializer_range: float = 0.02,
    name: str = "bert",
) -> keras.Model:
    """Builds a BERT encoder with its pooler.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of encoder layers, L (Hugging Face: num_hidden_layers).
        num_heads: number of attention heads, A (Hugging Face: num_attention_heads).
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the feed-forward networks; 4 H by default.
        max_sequence_length: number of learned positions, P.
        num_segments: number of segment embeddings, T (Hugging Face: type_vocab_size).
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: "gelu" is the erf form (Hugging Face), "gelu_approximate" the tanh form
            (Google's code).
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
        >>> model = bert(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> model.count_params() == 100 * 8 + 512 * 8 + 2 * 8 + 16 + 2 * 872 + 72
        True
    """
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    segment_ids = keras.Input((None,), dtype="int32", name="segment_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")

    token_vectors = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )(token_ids)
    segment_vectors = Embedding(
        num_segments,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="segment_embedding",
    )(segment_ids)
    hidden = keras.layers.Add(name="token_and_segment")([token_vectors, segment_vectors])
    hidden = IndexedPositionEmbedding(
        max_sequence_length, embeddings_initializer=initializer.clone(), name="position_embedding"
    )(hidden)
    hidden = embedded(hidden, dropout=dropout, norm_epsilon=norm_epsilon)
    hidden = encoded(
        hidden,
        padding_mask,
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        dropout=dropout,
        attention_dropout=attention_dropout,
        activation=activation,
        norm_epsilon=norm_epsilon,
        initializer=initializer,
    )
    return keras.Model(
        inputs={"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden, "pooled_output": pooled(hidden, initializer.clone())},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 30522,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int = 2,
) -> int:
    """Computes the parameter count of `bert` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    embeddings = (vocabulary_size + max_sequence_length + num_segments) * h + 2 * h
    layer = num_block_parameters(h, i)
    return embeddings + num_layers * layer + h * h + h


def size_of(name: str) -> dict[str, int]:
    """Returns a named model's size, as arguments of `bert`.

    Args:
        name: one of `MODELS`, or of a compact size: "bert_l4_h128" has 4 layers of width 128.

    Raises:
        ValueError: there is no such model.
    """
    if match := re.fullmatch(r"bert_l(\d+)_h(\d+)", name):
        return compact_size(int(match[1]), int(match[2]))
    if name not in SIZES:
        raise ValueError(f"use one of {', '.join(SIZES)}, or a compact size, such as bert_l4_h128")
    return dict(SIZES[name])


# Exact counts of the encoder with its pooler for V = 30,522, P = 512, T = 2.
_NUM_PARAMETERS = {
    "bert_tiny": 4_385_920,
    "bert_mini": 11_170_560,
    "bert_small": 28_763_648,
    "bert_medium": 41_373_184,
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
}
_PAPER_FIGURES = {"bert_base": "110M", "bert_large": "340M"}


def entry_of(name: str) -> Entry:
    """Returns the entry of a named model; see `size_of`."""
    size = size_of(name)
    shape = {"num_layers": size["num_layers"], "hidden_dim": size["hidden_dim"]}
    return Entry(
        name=name,
        factory=named_factory(
            bert,
            name,
            {**size, "vocabulary_size": 30522},
            summary=f"BERT with {size['num_layers']} layers, {size['num_heads']} heads and width "
            f"{size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS.get(name, num_parameters(**shape)),
        paper=_PAPER if name in _PAPER_FIGURES else _COMPACT_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        symbols={"V": 30522, "P": 512, "H": size["hidden_dim"], "I": 4 * size["hidden_dim"]},
        count=functools.partial(num_parameters, **shape),
    )


MODELS = {name: entry_of(name) for name in SIZES}
