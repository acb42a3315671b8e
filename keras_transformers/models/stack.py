"""Builds what BERT and its descendants share: the embeddings' norm, blocks and pooler."""

from collections.abc import Callable

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    FeedForward,
    FirstTokenPooler,
    MultiHeadAttention,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation

__all__: list[str] = []

PoolerActivation = str | Callable[[Tensor], Tensor]


def embedded(vectors: Tensor, *, dropout: float, norm_epsilon: float) -> Tensor:
    """Returns embeddings (batch, length, width) after norm and dropout."""
    normed = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="embeddings_norm")(vectors)
    return keras.layers.Dropout(dropout, name="embeddings_dropout")(normed)


def encoded(
    hidden: Tensor,
    padding_mask: Tensor,
    *,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None,
    dropout: float,
    attention_dropout: float,
    activation: Activation,
    norm_epsilon: float,
    initializer: keras.initializers.Initializer,
    attention_bias: Tensor | None = None,
) -> Tensor:
    """Returns vectors (batch, length, H) after `num_layers` blocks with the norm after the sum.

    Args:
        hidden: (batch, length, H).
        padding_mask: bool (batch, length), True at real tokens.
        num_layers: number of blocks; `encoder_layer_0` and so on are their names.
        num_heads: number of attention heads in each block.
        hidden_dim: width, H.
        intermediate_dim: inner width of the feed-forward networks; 4 H by default.
        dropout: rate on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        initializer: initializer of the blocks' matrices.
        attention_bias: bias on the scores, see `MultiHeadAttention`; the same for all blocks.
    """
    for index in range(num_layers):
        block = encoder_block(
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            intermediate_dim=intermediate_dim,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=activation,
            norm_epsilon=norm_epsilon,
            initializer=initializer,
            name=f"encoder_layer_{index}",
        )
        bias = {} if attention_bias is None else {"attention_bias": attention_bias}
        hidden = block(hidden, attention_mask=padding_mask, **bias)
    return hidden


def encoder_block(
    *,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None,
    dropout: float,
    attention_dropout: float,
    activation: Activation,
    norm_epsilon: float,
    initializer: keras.initializers.Initializer,
    name: str,
) -> TransformerBlock:
    """Makes a block with the norm after the sum; see `encoded`."""
    return TransformerBlock(
        MultiHeadAttention(
            num_heads,
            hidden_dim,
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
        name=name,
    )


def pooled(
    hidden: Tensor,
    initializer: keras.initializers.Initializer,
    activation: PoolerActivation = "tanh",
) -> Tensor:
    """Returns a dense layer on the first token's vector, (batch, H)."""
    return FirstTokenPooler(
        hidden.shape[-1], activation=activation, kernel_initializer=initializer, name="pooler"
    )(hidden)


def with_new_pooler(encoder: keras.Model, activation: PoolerActivation) -> keras.Model:
    """Adds `pooled_output` (batch, H): a new dense layer on the first token."""
    initializer = keras.initializers.TruncatedNormal(stddev=0.02)
    vector = pooled(encoder.output["sequence_output"], initializer, activation)
    outputs = {**encoder.output, "pooled_output": vector}
    return keras.Model(encoder.input, outputs, name=encoder.name)


def num_block_parameters(hidden_dim: int, intermediate_dim: int) -> int:
    """Computes the parameter count of one block."""
    h, i = hidden_dim, intermediate_dim
    return (4 * h * h + 4 * h) + 2 * h + (2 * h * i + i + h) + 2 * h
