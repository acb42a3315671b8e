"""M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022), which translate between many languages.

The Transformer with norms before each sub-layer, one matrix for sources, targets and logits, and
fairseq's sinusoids, which start at position 2.
"""

import functools
from typing import Any

from keras_transformers.families.transformer import model as transformer
from keras_transformers.layers.dense import Activation
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "m2m_100", "num_parameters"]

_M2M_PAPER = "Fan et al. 2020, https://arxiv.org/abs/2010.11125"
_NLLB_PAPER = "NLLB Team 2022, https://arxiv.org/abs/2207.04672"


def _size(
    vocabulary_size: int, num_layers: int, hidden_dim: int, intermediate_dim: int
) -> dict[str, Any]:
    return {
        "vocabulary_size": vocabulary_size,
        "num_encoder_layers": num_layers,
        "num_decoder_layers": num_layers,
        "num_heads": 16,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
    }


SIZES: dict[str, dict[str, Any]] = {
    "m2m_100_418m": _size(128112, 12, 1024, 4096),
    "m2m_100_1_2b": _size(128112, 24, 1024, 8192),
    "nllb_200_distilled_600m": _size(256206, 12, 1024, 4096),
    "nllb_200_distilled_1_3b": _size(256206, 24, 1024, 8192),
    "nllb_200_3_3b": _size(256206, 24, 2048, 8192),
}


def m2m_100(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    activation: Activation = "relu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    feed_forward_dropout: float = 0.0,
    norm_epsilon: float = 1e-5,
    pad_token_id: int = 1,
    name: str = "m2m_100",
) -> Transformer:
    """Builds an M2M-100 or NLLB, a Transformer for many languages.

    Args:
        vocabulary_size: number of tokens, V, which sources and targets share, languages included.
        num_encoder_layers: number of encoder layers (Hugging Face: encoder_layers).
        num_decoder_layers: number of decoder layers (Hugging Face: decoder_layers).
        num_heads: number of attention heads (Hugging Face: encoder_attention_heads).
        hidden_dim: width, H (Hugging Face: d_model).
        intermediate_dim: inner width of the feed-forward networks (Hugging Face: encoder_ffn_dim).
        max_sequence_length: the longest source or target (Hugging Face: max_position_embeddings).
        activation: activation of the feed-forward networks.
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        pad_token_id: id of the padding token of sources.
        name: the model's name.

    Returns:
        A functional model with the inputs and the output of `transformer`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`.
    """
    return transformer.transformer(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions="sinusoidal_fairseq",
        norm_position="pre",
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        feed_forward_dropout=feed_forward_dropout,
        norm_epsilon=norm_epsilon,
        pad_token_id=pad_token_id,
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
) -> int:
    """Computes the parameter count of `m2m_100` with these arguments, without building it."""
    return transformer.num_parameters(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        positions="sinusoidal_fairseq",
        norm_position="pre",
    )


_NUM_PARAMETERS = {
    "m2m_100_418m": 483_905_536,
    "m2m_100_1_2b": 1_239_470_080,
    "nllb_200_distilled_600m": 615_073_792,
    "nllb_200_distilled_1_3b": 1_370_638_336,
    "nllb_200_3_3b": 3_344_863_232,
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            m2m_100,
            name,
            size,
            summary=f"{'NLLB' if name.startswith('nllb') else 'M2M-100'} with "
            f"{size['num_encoder_layers']} + {size['num_decoder_layers']} layers and width "
            f"{size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_NLLB_PAPER if name.startswith("nllb") else _M2M_PAPER,
        symbols={
            "V": size["vocabulary_size"],
            "H": size["hidden_dim"],
            "I": size["intermediate_dim"],
        },
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
