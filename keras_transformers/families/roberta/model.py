"""RoBERTa: Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".

BERT's layers on byte-level byte pairs, without segments; positions start at 2.
"""

import functools

import keras
from keras import ops

from keras_transformers.layers import (
    Embedding,
    PaddedPositionEmbedding,
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

__all__ = ["SIZES", "num_parameters", "roberta"]

_PAPER = "Liu et al. 2019, https://arxiv.org/abs/1907.11692"
FIRST_POSITION = 2  # fairseq counts positions from the padding's id, 1

SIZES: dict[str, dict[str, int]] = {
    "roberta_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "roberta_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
}


def roberta(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-5,
    initializer_range: float = 0.02,
    name: str = "roberta",
) -> keras.Model:
    """Builds a RoBERTa encoder with its pooler.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of encoder layers, L (Hugging Face: num_hidden_layers).
        num_heads: number of attention heads (Hugging Face: num_attention_heads).
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the feed-forward networks; 4 H by default.
        max_sequence_length: number of positions, P; their matrix has P + 2 rows
            (Hugging Face: max_position_embeddings).
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        initializer_range: standard deviation of the matrices' initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 and `padding_mask` bool (batch, length), True
        at real tokens, with padding on either side. Outputs: `sequence_output` (batch, length, H),
        `pooled_output` (batch, H).

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`.

    Example:
        >>> model = roberta(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> model.count_params() == 100 * 8 + (512 + 2) * 8 + 8 + 16 + 2 * 872 + 72
        True
    """
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")

    token_vectors = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )(token_ids)
    # One vector for all tokens: Hugging Face keeps BERT's segments, and RoBERTa has only the first.
    segment_vectors = Embedding(
        1, hidden_dim, embeddings_initializer=initializer.clone(), name="segment_embedding"
    )(ops.zeros_like(token_ids))
    hidden = keras.layers.Add(name="token_and_segment")([token_vectors, segment_vectors])
    hidden = PaddedPositionEmbedding(
        max_sequence_length,
        first_position=FIRST_POSITION,
        embeddings_initializer=initializer.clone(),
        name="position_embedding",
    )(hidden, padding_mask)
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
        inputs={"token_ids": token_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden, "pooled_output": pooled(hidden, initializer.clone())},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 50265,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
) -> int:
    """Computes the parameter count of `roberta` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    embeddings = (vocabulary_size + FIRST_POSITION + max_sequence_length + 1) * h + 2 * h
    layer = num_block_parameters(h, i)
    return embeddings + num_layers * layer + h * h + h


_NUM_PARAMETERS = {"roberta_base": 124_645_632, "roberta_large": 355_359_744}
_PAPER_FIGURES = {"roberta_large": "355M"}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            roberta,
            name,
            {**size, "vocabulary_size": 50265},
            summary=f"RoBERTa with {size['num_layers']} layers, {size['num_heads']} heads and "
            f"width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        symbols={"V": 50265, "P": 512, "H": size["hidden_dim"], "I": 4 * size["hidden_dim"]},
        count=functools.partial(
            num_parameters, num_layers=size["num_layers"], hidden_dim=size["hidden_dim"]
        ),
    )
    for name, size in SIZES.items()
}
