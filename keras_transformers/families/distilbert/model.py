"""DistilBERT: Sanh et al. 2019, "DistilBERT, a distilled version of BERT".

Half of BERT's layers, no segments and no pooler. `with_pooler` adds the layer that Hugging Face
puts between the encoder and a classifier: a dense layer with ReLU on the first token.
"""

import functools

import keras

from keras_transformers.layers import (
    PositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.models.entry import Entry, named_factory
from keras_transformers.models.stack import (
    embedded,
    encoded,
    num_block_parameters,
    with_new_pooler,
)

__all__ = ["SIZES", "distilbert", "num_parameters", "with_pooler"]

_PAPER = "Sanh et al. 2019, https://arxiv.org/abs/1910.01108"

SIZES: dict[str, dict[str, int]] = {
    "distilbert_base": {
        "num_layers": 6,
        "num_heads": 12,
        "hidden_dim": 768,
        "vocabulary_size": 30522,
    },
    "distilbert_base_multilingual": {
        "num_layers": 6,
        "num_heads": 12,
        "hidden_dim": 768,
        "vocabulary_size": 119547,
    },
}


def distilbert(
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
    initializer_range: float = 0.02,
    name: str = "distilbert",
) -> keras.Model:
    """Builds a DistilBERT encoder.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of encoder layers, L (Hugging Face: n_layers).
        num_heads: number of attention heads (Hugging Face: n_heads).
        hidden_dim: width, H (Hugging Face: dim).
        intermediate_dim: inner width of the feed-forward networks; 4 H by default (Hugging Face:
            hidden_dim).
        max_sequence_length: number of learned positions, P.
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward networks.
        initializer_range: standard deviation of the matrices' initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 and `padding_mask` bool (batch, length), True
        at real tokens. Output: `sequence_output` (batch, length, H).

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`.

    Example:
        >>> model = distilbert(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> model.count_params() == 100 * 8 + 512 * 8 + 16 + 2 * 872
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
    hidden = PositionEmbedding(
        max_sequence_length, embeddings_initializer=initializer.clone(), name="position_embedding"
    )(hidden)
    hidden = embedded(hidden, dropout=dropout, norm_epsilon=1e-12)
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
        norm_epsilon=1e-12,
        initializer=initializer,
    )
    return keras.Model(
        inputs={"token_ids": token_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden},
        name=name,
    )


def with_pooler(encoder: keras.Model) -> keras.Model:
    """Adds `pooled_output` (batch, H): a new dense layer with ReLU on the first token.

    Hugging Face: `pre_classifier` of DistilBertForSequenceClassification.
    """
    return with_new_pooler(encoder, "relu")


def num_parameters(
    *,
    vocabulary_size: int = 30522,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
) -> int:
    """Computes the parameter count of `distilbert` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    embeddings = (vocabulary_size + max_sequence_length) * h + 2 * h
    layer = num_block_parameters(h, i)
    return embeddings + num_layers * layer


_NUM_PARAMETERS = {"distilbert_base": 66_362_880, "distilbert_base_multilingual": 134_734_080}
_PAPER_FIGURES = {"distilbert_base": "66M"}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            distilbert,
            name,
            size,
            summary=f"DistilBERT with {size['num_layers']} layers, width {size['hidden_dim']} and "
            f"{size['vocabulary_size']:,} tokens, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        symbols={
            "V": size["vocabulary_size"],
            "P": 512,
            "H": size["hidden_dim"],
            "I": 4 * size["hidden_dim"],
        },
        count=functools.partial(
            num_parameters,
            vocabulary_size=size["vocabulary_size"],
            num_layers=size["num_layers"],
            hidden_dim=size["hidden_dim"],
        ),
    )
    for name, size in SIZES.items()
}
