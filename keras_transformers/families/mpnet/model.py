"""MPNet: Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding".

BERT's layers without segments. Positions start at 2, and all layers also add one bias on the
distance between two tokens to their attention scores.
"""

import functools

import keras

from keras_transformers.layers import (
    PaddedPositionEmbedding,
    RelativePositionBias,
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

__all__ = ["SIZES", "mpnet", "num_parameters"]

_PAPER = "Song et al. 2020, https://arxiv.org/abs/2004.09297"
FIRST_POSITION = 2  # fairseq counts positions from the padding's id, 1
# Hugging Face always uses these, regardless of the configuration.
NUM_BUCKETS, MAX_DISTANCE = 32, 128

SIZES: dict[str, dict[str, int]] = {
    "mpnet_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
}


def mpnet(
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
    name: str = "mpnet",
) -> keras.Model:
    """Builds an MPNet encoder with its pooler.

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
        >>> model = mpnet(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> model.count_params() == 100 * 8 + (512 + 2) * 8 + 16 + 32 * 2 + 2 * 872 + 72
        True
    """
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")

    hidden = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )(token_ids)
    hidden = PaddedPositionEmbedding(
        max_sequence_length,
        first_position=FIRST_POSITION,
        embeddings_initializer=initializer.clone(),
        name="position_embedding",
    )(hidden, padding_mask)
    hidden = embedded(hidden, dropout=dropout, norm_epsilon=norm_epsilon)
    bias = RelativePositionBias(
        NUM_BUCKETS,
        num_heads,
        max_distance=MAX_DISTANCE,
        embeddings_initializer=initializer.clone(),
        name="relative_position_bias",
    )(hidden)
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
        attention_bias=bias,
    )
    return keras.Model(
        inputs={"token_ids": token_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden, "pooled_output": pooled(hidden, initializer.clone())},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 30527,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
) -> int:
    """Computes the parameter count of `mpnet` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    embeddings = (vocabulary_size + FIRST_POSITION + max_sequence_length) * h + 2 * h
    layer = num_block_parameters(h, i)
    return embeddings + NUM_BUCKETS * num_heads + num_layers * layer + h * h + h


MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            mpnet,
            name,
            {**size, "vocabulary_size": 30527},
            summary=f"MPNet with {size['num_layers']} layers, {size['num_heads']} heads and width "
            f"{size['hidden_dim']}, with random weights.",
        ),
        num_parameters=109_486_464,
        paper=_PAPER,
        symbols={"V": 30527, "P": 512, "H": size["hidden_dim"], "I": 4 * size["hidden_dim"]},
        count=functools.partial(
            num_parameters,
            num_layers=size["num_layers"],
            num_heads=size["num_heads"],
            hidden_dim=size["hidden_dim"],
        ),
    )
    for name, size in SIZES.items()
}
