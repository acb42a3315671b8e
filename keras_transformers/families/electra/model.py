"""ELECTRA: Clark et al. 2020, "Pre-training Text Encoders as Discriminators".

BERT's layers without the pooler, over embeddings that may be narrower than the layers. A small
generator fills masked words, and the discriminator, which is the encoder to keep, finds the words
that it got wrong: `heads.electra_pretrainer` trains the two together. `with_pooler` adds the layer
that Hugging Face puts between the encoder and a classifier: a dense layer with gelu on the first
token.
"""

import functools
from typing import Any

import keras

from keras_transformers.layers import (
    Embedding,
    PositionEmbedding,
    RowDense,
    TokenEmbedding,
)
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.models.anatomy import anatomy, block_shape
from keras_transformers.models.entry import Entry, named_factory
from keras_transformers.models.stack import (
    embedded,
    encoded,
    num_block_parameters,
    with_new_pooler,
)

__all__ = ["SIZES", "electra", "electra_generator", "num_parameters", "with_pooler"]

_PAPER = "Clark et al. 2020, https://arxiv.org/abs/2003.10555"

_SMALL = {"num_layers": 12, "num_heads": 4, "hidden_dim": 256}
_LARGE_GENERATOR = {"num_layers": 24, "num_heads": 4, "hidden_dim": 256}
# The sizes of Google's checkpoints. Their small generator is as wide as the discriminator; the
# paper's has a quarter of the width, which is `electra_generator(electra_small())`.
SIZES: dict[str, dict[str, int]] = {
    "electra_small": {**_SMALL, "embedding_dim": 128},
    "electra_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768, "embedding_dim": 768},
    "electra_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024, "embedding_dim": 1024},
    "electra_small_generator": {**_SMALL, "embedding_dim": 128},
    "electra_base_generator": {**_SMALL, "embedding_dim": 768},
    "electra_large_generator": {**_LARGE_GENERATOR, "embedding_dim": 1024},
}


def electra(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    embedding_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int = 2,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    initializer_range: float = 0.02,
    name: str = "electra",
) -> keras.Model:
    """Builds an ELECTRA encoder: a discriminator or a generator, without its head.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of encoder layers, L (Hugging Face: num_hidden_layers).
        num_heads: number of attention heads, A (Hugging Face: num_attention_heads).
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the feed-forward networks; 4 H by default.
        embedding_dim: width of the embeddings, E (Hugging Face: embedding_size); H by default. If
            it differs from H, a dense layer maps them to H.
        max_sequence_length: number of learned positions, P.
        num_segments: number of segment embeddings, T (Hugging Face: type_vocab_size).
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        initializer_range: standard deviation of the matrices' initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` and `segment_ids` int32 (batch, length),
        `padding_mask` bool (batch, length), True at real tokens. Output: `sequence_output`
        (batch, length, H).

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`.

    Example:
        >>> model = electra(
        ...     vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8, embedding_dim=4
        ... )
        >>> model.count_params() == (100 + 512 + 2) * 4 + 8 + (4 * 8 + 8) + 2 * 872
        True
    """
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    width = embedding_dim or hidden_dim
    embeddings = {
        "token_embedding": TokenEmbedding(
            vocabulary_size,
            width,
            embeddings_initializer=initializer.clone(),
            name="token_embedding",
        ),
        "segment_embedding": Embedding(
            num_segments,
            width,
            embeddings_initializer=initializer.clone(),
            name="segment_embedding",
        ),
        "position_embedding": PositionEmbedding(
            max_sequence_length,
            embeddings_initializer=initializer.clone(),
            name="position_embedding",
        ),
    }
    layer: dict[str, Any] = {
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim or 4 * hidden_dim,
        "dropout": dropout,
        "attention_dropout": attention_dropout,
        "activation": activation,
        "norm_epsilon": norm_epsilon,
    }
    return _encoder(embeddings, num_layers, layer, initializer, name)


def electra_generator(
    encoder: keras.Model, *, size: float = 0.25, name: str | None = None
) -> keras.Model:
    """Builds a generator for an ELECTRA encoder; both share the weights of the embeddings.

    It has as many layers and, as in the paper, a fraction of the width, of the inner width and of
    the heads. The embeddings of tokens, segments and positions are shared; all else is its own.

    Args:
        encoder: a model from `electra`.
        size: width of the generator as a share of the encoder's, above 0 and at most 1. The paper
            uses 1/4 for its small and large models and 1/3 for the base model.
        name: the model's name; "<encoder>_generator" by default.

    Raises:
        ValueError: `size` is out of range, or gives a width that is not a multiple of the number of
            heads.

    Example:
        >>> encoder = electra(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> generator = electra_generator(encoder, size=0.5)
        >>> generator.get_layer("token_embedding") is encoder.get_layer("token_embedding")
        True
        >>> generator.output["sequence_output"].shape
        (None, None, 4)
    """
    if not 0 < size <= 1:
        raise ValueError(f"size={size}: pass the generator's share of the width, above 0, up to 1")
    shared = ("token_embedding", "segment_embedding", "position_embedding")
    embeddings = {layer.name: layer for layer in encoder.layers if layer.name in shared}
    layers = anatomy(encoder, "blocks").blocks
    first = block_shape(layers[0])
    layer = {
        "num_heads": max(1, round(size * first["num_heads"])),
        "hidden_dim": round(size * first["hidden_dim"]),
        "intermediate_dim": round(size * first["intermediate_dim"]),
        **{
            key: first[key]
            for key in ("dropout", "attention_dropout", "activation", "norm_epsilon")
        },
    }
    initializer = embeddings["token_embedding"].embeddings_initializer
    return _encoder(
        embeddings, len(layers), layer, initializer, name or f"{encoder.name}_generator"
    )


def _encoder(
    embeddings: dict[str, Any],
    num_layers: int,
    layer: dict[str, Any],
    initializer: keras.initializers.Initializer,
    name: str,
) -> keras.Model:
    """Builds the model on these embeddings, and blocks with the shape `layer`."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    segment_ids = keras.Input((None,), dtype="int32", name="segment_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")

    hidden = keras.layers.Add(name="token_and_segment")(
        [embeddings["token_embedding"](token_ids), embeddings["segment_embedding"](segment_ids)]
    )
    hidden = embeddings["position_embedding"](hidden)
    hidden = embedded(hidden, dropout=layer["dropout"], norm_epsilon=layer["norm_epsilon"])
    if hidden.shape[-1] != layer["hidden_dim"]:
        hidden = RowDense(
            layer["hidden_dim"], kernel_initializer=initializer.clone(), name="embeddings_project"
        )(hidden)
    hidden = encoded(hidden, padding_mask, num_layers=num_layers, initializer=initializer, **layer)
    return keras.Model(
        inputs={"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden},
        name=name,
    )


def with_pooler(encoder: keras.Model) -> keras.Model:
    """Adds `pooled_output` (batch, H): a new dense layer with gelu on the first token.

    Hugging Face: the first layer of ElectraClassificationHead.
    """
    return with_new_pooler(encoder, activation_function("gelu"))  # regardless of the encoder's


def num_parameters(
    *,
    vocabulary_size: int = 30522,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    embedding_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int = 2,
) -> int:
    """Computes the parameter count of `electra` with these arguments, without building it."""
    h, i, e = hidden_dim, intermediate_dim or 4 * hidden_dim, embedding_dim or hidden_dim
    embeddings = (vocabulary_size + max_sequence_length + num_segments) * e + 2 * e
    project = e * h + h if e != h else 0
    layer = num_block_parameters(h, i)
    return embeddings + project + num_layers * layer


_NUM_PARAMETERS = {
    "electra_small": 13_483_008,
    "electra_base": 108_891_648,
    "electra_large": 334_092_288,
    "electra_small_generator": 13_483_008,
    "electra_base_generator": 33_511_168,
    "electra_large_generator": 50_999_552,
}
_PAPER_FIGURES = {"electra_small": "14M", "electra_base": "110M", "electra_large": "335M"}
_PAPER_NOTES = {
    "electra_small": "with the discriminator's head: 13,549,057",
    "electra_large": "with the discriminator's head: 335,142,913",
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            electra,
            name,
            {**size, "vocabulary_size": 30522},
            summary=f"ELECTRA with {size['num_layers']} layers, {size['num_heads']} heads, width "
            f"{size['hidden_dim']} and embeddings of {size['embedding_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=_PAPER_NOTES.get(name, ""),
        symbols={
            "V": 30522,
            "P": 512,
            "E": size["embedding_dim"],
            "H": size["hidden_dim"],
            "I": 4 * size["hidden_dim"],
        },
        count=functools.partial(
            num_parameters,
            num_layers=size["num_layers"],
            hidden_dim=size["hidden_dim"],
            embedding_dim=size["embedding_dim"],
        ),
    )
    for name, size in SIZES.items()
}
