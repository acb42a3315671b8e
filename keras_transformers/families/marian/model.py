"""Marian's translation models, such as those of Opus-MT: Junczys-Dowmunt et al. 2018.

The Transformer with the swish function, one matrix for sources, targets and logits, a bias on the
logits, and sines before cosines.
"""

import functools
from typing import Any, Literal, get_args

from keras_transformers.families.transformer import model as transformer
from keras_transformers.layers.dense import Activation
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "marian", "num_parameters"]

_PAPER = "Junczys-Dowmunt et al. 2018, https://arxiv.org/abs/1804.00344"

Positions = Literal["sinusoidal_halves", "learned"]

SIZES: dict[str, dict[str, Any]] = {
    "opus_mt": {
        "vocabulary_size": 58101,
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "num_heads": 8,
        "hidden_dim": 512,
        "intermediate_dim": 2048,
    }
}


def marian(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 512,
    positions: Positions = "sinusoidal_halves",
    activation: Activation = "silu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    feed_forward_dropout: float = 0.0,
    norm_epsilon: float = 1e-5,
    pad_token_id: int | None = None,
    name: str = "marian",
) -> Transformer:
    """Builds a Marian, the Transformer of Opus-MT.

    Args:
        vocabulary_size: number of tokens, V, which sources and targets share.
        num_encoder_layers: number of encoder layers (Hugging Face: encoder_layers).
        num_decoder_layers: number of decoder layers (Hugging Face: decoder_layers).
        num_heads: number of attention heads (Hugging Face: encoder_attention_heads).
        hidden_dim: width, H (Hugging Face: d_model).
        intermediate_dim: inner width of the feed-forward networks (Hugging Face: encoder_ffn_dim).
        max_sequence_length: the longest source or target (Hugging Face: max_position_embeddings).
        positions: "sinusoidal_halves", all sines before the cosines, or "learned", as TensorFlow's
            classes of transformers fine-tuned them.
        activation: activation of the feed-forward networks (Hugging Face: "swish").
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        pad_token_id: id of the padding token, which also starts targets; the last one by default.
        name: the model's name.

    Returns:
        A functional model with the inputs and the output of `transformer`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`, or `positions` is unknown.
    """
    check_positions(positions, "Marian")
    return transformer.transformer(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions=positions,
        activation=activation,
        use_output_bias=True,
        dropout=dropout,
        attention_dropout=attention_dropout,
        feed_forward_dropout=feed_forward_dropout,
        norm_epsilon=norm_epsilon,
        pad_token_id=vocabulary_size - 1 if pad_token_id is None else pad_token_id,
        name=name,
    )


def check_positions(positions: str, family: str) -> None:
    """Raises ValueError for positions that the family does not have."""
    if positions not in get_args(Positions):
        kinds = " or ".join(map(repr, get_args(Positions)))
        raise ValueError(f"positions={positions!r}: expected {kinds} for {family}")


def num_parameters(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 512,
    positions: Positions = "sinusoidal_halves",
) -> int:
    """Computes the parameter count of `marian` with these arguments, without building it."""
    return transformer.num_parameters(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions=positions,
        use_output_bias=True,
    )


MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            marian,
            name,
            size,
            summary=f"A Marian with {size['num_encoder_layers']} + {size['num_decoder_layers']} "
            f"layers and width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=73_944_309,
        paper=_PAPER,
        symbols={
            "V": size["vocabulary_size"],
            "H": size["hidden_dim"],
            "I": size["intermediate_dim"],
        },
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
