"""mBART (Liu et al. 2020) and mBART-50 (Tang et al. 2020), BART for many languages.

BART's arrangement, with norms before each sub-layer and scaled embeddings.
"""

import functools
from typing import Any

from keras_transformers.families.bart.model import FIRST_POSITION
from keras_transformers.families.transformer import model as transformer
from keras_transformers.layers.dense import Activation
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "mbart", "num_parameters"]

_SHAPE = {
    "num_encoder_layers": 12,
    "num_decoder_layers": 12,
    "num_heads": 16,
    "hidden_dim": 1024,
    "intermediate_dim": 4096,
}
# Their vocabularies differ by the tokens of 27 languages.
SIZES: dict[str, dict[str, Any]] = {
    "mbart_large_cc25": {"vocabulary_size": 250_027, **_SHAPE},
    "mbart_large_50": {"vocabulary_size": 250_054, **_SHAPE},
}


def mbart(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    scale_embeddings: bool = True,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    feed_forward_dropout: float = 0.0,
    norm_epsilon: float = 1e-5,
    pad_token_id: int = 1,
    name: str = "mbart",
) -> Transformer:
    """Builds an mBART or mBART-50, an encoder-decoder for many languages.

    Args:
        vocabulary_size: number of tokens, V, which sources and targets share, languages included.
        num_encoder_layers: number of encoder layers (Hugging Face: encoder_layers).
        num_decoder_layers: number of decoder layers (Hugging Face: decoder_layers).
        num_heads: number of attention heads (Hugging Face: encoder_attention_heads).
        hidden_dim: width, H (Hugging Face: d_model).
        intermediate_dim: inner width of the feed-forward networks (Hugging Face: encoder_ffn_dim).
        max_sequence_length: the longest source or target (Hugging Face: max_position_embeddings).
        scale_embeddings: whether token embeddings are multiplied by sqrt(hidden_dim).
        activation: activation of the feed-forward networks.
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        pad_token_id: id of the padding token of sources; no position attends to it.
        name: the model's name.

    Returns:
        A functional model with the inputs and the output of `transformer`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`.

    Example:
        >>> import keras
        >>> model = mbart(vocabulary_size=50, num_encoder_layers=1, num_decoder_layers=1,
        ...               num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """
    return transformer.transformer(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions="learned",
        first_position=FIRST_POSITION,
        scale_embeddings=scale_embeddings,
        use_embeddings_norm=True,
        norm_position="pre",
        activation=activation,
        use_output_bias=True,
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
    max_sequence_length: int = 1024,
) -> int:
    """Computes the parameter count of `mbart` with these arguments, without building it."""
    return transformer.num_parameters(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions="learned",
        first_position=FIRST_POSITION,
        use_embeddings_norm=True,
        norm_position="pre",
        use_output_bias=True,
    )


# With the bias of the logits, which is not a parameter in Hugging Face's.
_NUM_PARAMETERS = {"mbart_large_cc25": 611_101_867, "mbart_large_50": 611_129_542}
_PAPER_FIGURES = {"mbart_large_cc25": "680M"}
_PAPER_NOTES = {
    "mbart_large_cc25": "the released mBART has fewer parameters than the printed figure"
}
_PAPERS = {
    "mbart_large_cc25": "Liu et al. 2020, https://arxiv.org/abs/2001.08210",
    "mbart_large_50": "Tang et al. 2020, https://arxiv.org/abs/2008.00401",
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            mbart,
            name,
            size,
            summary=f"{'mBART-50' if name.endswith('50') else 'mBART'} with "
            f"{size['num_encoder_layers']} + {size['num_decoder_layers']} layers and width "
            f"{size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPERS[name],
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=_PAPER_NOTES.get(name, ""),
        symbols={
            "V": size["vocabulary_size"],
            "H": size["hidden_dim"],
            "I": size["intermediate_dim"],
        },
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
