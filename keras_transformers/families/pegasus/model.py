"""PEGASUS: Zhang et al. 2019, "Pre-training with Extracted Gap-sentences for ... Summarization".

The Transformer with norms before each sub-layer, one matrix for sources, targets and logits, a bias
on the logits, and sines before cosines.
"""

import functools
from typing import Any

from keras_transformers.families.marian.model import Positions, check_positions
from keras_transformers.families.transformer import model as transformer
from keras_transformers.layers.dense import Activation
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "num_parameters", "pegasus"]

_PAPER = "Zhang et al. 2019, https://arxiv.org/abs/1912.08777"

SIZES: dict[str, dict[str, Any]] = {
    "pegasus_large": {
        "num_encoder_layers": 16,
        "num_decoder_layers": 16,
        "num_heads": 16,
        "hidden_dim": 1024,
        "intermediate_dim": 4096,
    }
}


def pegasus(
    *,
    vocabulary_size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    positions: Positions = "sinusoidal_halves",
    scale_embeddings: bool = True,
    activation: Activation = "relu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    feed_forward_dropout: float = 0.1,
    norm_epsilon: float = 1e-5,
    pad_token_id: int = 0,
    name: str = "pegasus",
) -> Transformer:
    """Builds a PEGASUS, an encoder-decoder that summarizes texts.

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
        scale_embeddings: whether token embeddings are multiplied by sqrt(hidden_dim).
        activation: activation of the feed-forward networks.
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        pad_token_id: id of the padding token, which also starts targets.
        name: the model's name.

    Returns:
        A functional model with the inputs and the output of `transformer`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`, or `positions` is unknown.

    Example:
        >>> import keras
        >>> model = pegasus(vocabulary_size=50, num_encoder_layers=1, num_decoder_layers=1,
        ...                 num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """
    check_positions(positions, "PEGASUS")
    return transformer.transformer(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions=positions,
        scale_embeddings=scale_embeddings,
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
    vocabulary_size: int = 96103,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    positions: Positions = "sinusoidal_halves",
) -> int:
    """Computes the parameter count of `pegasus` with these arguments, without building it."""
    return transformer.num_parameters(
        vocabulary_size=vocabulary_size,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=max_sequence_length,
        positions=positions,
        norm_position="pre",
        use_output_bias=True,
    )


MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            pegasus,
            name,
            {**size, "vocabulary_size": 96103},
            summary=f"A PEGASUS with {size['num_encoder_layers']} + {size['num_decoder_layers']} "
            f"layers and width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=568_796_007,  # with the bias, which is not a parameter in Hugging Face's
        paper=_PAPER,
        symbols={"V": 96103, "H": size["hidden_dim"], "I": size["intermediate_dim"]},
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
