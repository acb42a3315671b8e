"""Echo: an encoder that passes its blocks more than once, with a learned vector for each pass.

The recurrence over depth, and the vector that tells passes apart, are those of the Universal
Transformer (Dehghani et al. 2018).
"""

import functools

import keras

from keras_transformers.layers import (
    FeedForward,
    FirstTokenPooler,
    MultiHeadAttention,
    PositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.models import Entry, named_factory

SIZES = {
    "acme_echo_tiny": {"num_layers": 1, "num_passes": 3, "num_heads": 2, "hidden_dim": 16},
    "acme_echo_small": {"num_layers": 3, "num_passes": 2, "num_heads": 4, "hidden_dim": 64},
}


@keras.saving.register_keras_serializable(package="acme")
class PassEmbedding(keras.layers.Layer):
    """Adds the learned vector of one pass to every position.

    Args:
        num_passes: number of vectors.
    """

    def __init__(self, num_passes: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.num_passes = num_passes

    def build(self, shape) -> None:
        """Adds the vectors: (passes, width)."""
        self.embeddings = self.add_weight(
            shape=(self.num_passes, shape[-1]), initializer="uniform", name="embeddings"
        )

    def call(self, hidden, number: int):
        """Adds vector `number` to (batch, length, width)."""
        return hidden + keras.ops.cast(self.embeddings[number], hidden.dtype)

    def get_config(self) -> dict:
        """Returns the arguments."""
        return {**super().get_config(), "num_passes": self.num_passes}


def echo(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_passes: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 64,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation: str = "gelu",
    name: str = "echo",
) -> keras.Model:
    """Builds an Echo encoder with its pooler."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    hidden = TokenEmbedding(vocabulary_size, hidden_dim, name="token_embedding")(token_ids)
    hidden = PositionEmbedding(max_sequence_length, name="position_embedding")(hidden)
    which_pass = PassEmbedding(num_passes, name="pass_embedding")
    blocks = [
        TransformerBlock(
            MultiHeadAttention(num_heads, hidden_dim, attention_dropout=attention_dropout),
            FeedForward(intermediate_dim or 4 * hidden_dim, hidden_dim, activation=activation),
            norm_position="post",
            norm_epsilon=1e-6,
            dropout=dropout,
            name=f"encoder_layer_{number}",
        )
        for number in range(num_layers)
    ]
    for number in range(num_passes):
        hidden = which_pass(hidden, number=number)
        for block in blocks:
            hidden = block(hidden, attention_mask=padding_mask)
    pooled = FirstTokenPooler(hidden_dim, activation="tanh", name="pooler")(hidden)
    return keras.Model(
        {"token_ids": token_ids, "padding_mask": padding_mask},
        {"sequence_output": hidden, "pooled_output": pooled},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 1000,
    num_layers: int,
    num_passes: int,
    hidden_dim: int,
    max_sequence_length: int = 64,
) -> int:
    """Computes the count of `echo` with these arguments."""
    h = hidden_dim
    embeddings = (vocabulary_size + max_sequence_length + num_passes) * h
    block = 4 * (h * h + h) + (h * 4 * h + 4 * h) + (4 * h * h + h) + 2 * 2 * h
    return embeddings + num_layers * block + (h * h + h)


_NUM_PARAMETERS = {"acme_echo_tiny": 20_624, "acme_echo_small": 222_336}

MODELS = {
    name: Entry(
        name,
        named_factory(echo, name, {"vocabulary_size": 1000, **size}, summary=f"Echo, {name}."),
        _NUM_PARAMETERS[name],
        "Dehghani et al. 2018, https://arxiv.org/abs/1807.03819",
        symbols={"V": 1000, "P": 64, "H": size["hidden_dim"], "I": 4 * size["hidden_dim"]},
        count=functools.partial(
            num_parameters,
            num_layers=size["num_layers"],
            num_passes=size["num_passes"],
            hidden_dim=size["hidden_dim"],
        ),
    )
    for name, size in SIZES.items()
}
