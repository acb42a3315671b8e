"""Embedding: one vector per text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from keras_transformers.dependencies.private_api import calls
from keras_transformers.layers import (
    ChoicesToRows,
    FirstDimensions,
    LastToken,
    RowsToGroups,
    TokenPooling,
)
from keras_transformers.models import encoder_parts

__all__ = [
    "embedder",
    "grouped_embedder",
    "with_cls_pooling",
    "with_last_pooling",
    "with_mean_pooling",
]

# The layers that may follow the pooling.
PROJECTIONS = (
    keras.layers.Dense,
    keras.layers.LayerNormalization,
    keras.layers.UnitNormalization,
)


def embedder(
    encoder: keras.Model,
    *,
    pooling: str | Sequence[str] = "mean",
    projections: Sequence[keras.layers.Layer] = (),
    normalize: bool = True,
    truncate_dim: int | None = None,
    name: str | None = None,
) -> keras.Model:
    """Maps each text to one vector; after training, similar texts get similar vectors.

    Reimers & Gurevych 2019, "Sentence-BERT", arXiv:1908.10084, section 3. The only new weights are
    those of `projections`.

    Args:
        encoder: a model with the input `padding_mask` and the output `sequence_output`.
        pooling: one of the modes of `layers.TokenPooling`, or several, whose vectors are joined.
            "mean" averages the vectors of all real tokens, [CLS] and [SEP] included; "cls" takes
            the first token's vector from the last layer, before BERT's pooler.
        projections: layers from (batch, width) to (batch, width) for the pooled vector, in their
            order: `keras.layers.Dense`, `LayerNormalization`, `UnitNormalization`.
        normalize: whether to scale vectors to length 1, so that a dot product is a cosine.
        truncate_dim: how many leading dimensions of a vector to keep, after `normalize`, as
            sentence-transformers does; by default all.
        name: the model's name; "<encoder>_embedder" by default.

    Returns:
        A functional model with the encoder's inputs and the output `embedding` (batch, width) in
        float32. The mean of a row that is all padding is zeros.

    Raises:
        ValueError: the encoder lacks that input or output, `pooling` is unknown, or `truncate_dim`
            is not below the width.
    """
    vectors = encoder_parts.named_output(encoder, "sequence_output")
    pool = TokenPooling(pooling, dtype="float32", name="pooling")
    needs_mask = pool.modes != ("cls",)
    mask = encoder_parts.padding_mask(encoder, remedy="pooling='cls' or ") if needs_mask else None
    pooled = pool(vectors, padding_mask=mask)
    for layer in projections:
        pooled = layer(pooled)
    if truncate_dim is not None and not 0 < truncate_dim <= pooled.shape[-1]:
        raise ValueError(
            f"truncate_dim={truncate_dim}: keep at least 1 and at most the {pooled.shape[-1]} "
            f"dimensions of model {encoder.name!r}"
        )
    last = keras.layers.UnitNormalization if normalize else keras.layers.Identity
    if truncate_dim is None:
        embedding = last(dtype="float32", name="embedding")(pooled)
    else:
        whole = last(dtype="float32", name="whole_embedding")(pooled)
        embedding = FirstDimensions(truncate_dim, dtype="float32", name="embedding")(whole)
    return keras.Model(
        inputs=encoder.input,
        outputs={"embedding": embedding},
        name=name or f"{encoder.name}_embedder",
    )


def grouped_embedder(model: keras.Model) -> keras.Model:
    """Returns a model with the same layers that embeds several texts per example, for training.

    An example is a text, a matching text and possibly some that do not match, so batches can be
    shuffled, divided among replicas and weighted by example.

    Args:
        model: a model from `embedder`, or one over windows that has its output.

    Returns:
        A functional model with the inputs of `model`, each (batch, group, ...), and the output
        `embedding` (batch, group, width).

    Example:
        >>> import keras_transformers as kt
        >>> model = grouped_embedder(embedder(kt.bert_tiny(vocabulary_size=11)))
        >>> model.output["embedding"].shape
        (None, None, 128)
    """
    inputs = {
        name: keras.Input((None, *tensor.shape[1:]), dtype=tensor.dtype, name=name)
        for name, tensor in model.input.items()
    }
    rows = {name: ChoicesToRows(name=f"{name}_rows")(tensor) for name, tensor in inputs.items()}
    vectors = model(rows)["embedding"]
    grouped = RowsToGroups(dtype="float32", name="grouped")(vectors, inputs["token_ids"])
    return keras.Model(inputs, {"embedding": grouped}, name=f"{model.name}_grouped")


def with_mean_pooling(encoder: keras.Model, *, normalize: bool = False) -> keras.Model:
    """Returns the encoder with the mean of its real tokens as `pooled_output`, without its pooler.

    Encoders trained to embed sentences, such as all-MiniLM-L6-v2, have an untrained pooler.

    Args:
        encoder: see `embedder`.
        normalize: whether to scale the mean to length 1.

    Raises:
        ValueError: the encoder lacks that input or output.
    """
    mask = encoder_parts.padding_mask(encoder)
    vectors = encoder_parts.named_output(encoder, "sequence_output")
    # A row of only padding, which multiple choice adds to a question with fewer choices, has no
    # mean. The mean of its padding is used nowhere, and has a gradient that is not NaN.
    is_empty = keras.ops.logical_not(keras.ops.any(mask, axis=1, keepdims=True))
    mean = keras.layers.GlobalAveragePooling1D(name="mean_pooling")(
        vectors, mask=keras.ops.logical_or(mask, is_empty)
    )
    if normalize:
        mean = keras.layers.UnitNormalization(dtype="float32", name="unit_pooling")(mean)
    return _with_pooled(encoder, mean)


def with_cls_pooling(encoder: keras.Model) -> keras.Model:
    """Returns the encoder with its first token's vector as `pooled_output`, without its pooler.

    Args:
        encoder: a model with the output `sequence_output`.

    Raises:
        ValueError: the encoder lacks that output.
    """
    first = encoder_parts.named_output(encoder, "sequence_output")[:, 0]
    return _with_pooled(encoder, keras.layers.Identity(name="cls_pooling")(first))


def with_last_pooling(encoder: keras.Model) -> keras.Model:
    """Returns the encoder with its last real token's vector as `pooled_output`.

    In a decoder, only the last token has seen the whole text.

    Args:
        encoder: see `embedder`.

    Raises:
        ValueError: the encoder lacks that input or output.
    """
    mask = encoder_parts.padding_mask(encoder)
    vectors = encoder_parts.named_output(encoder, "sequence_output")
    return _with_pooled(encoder, LastToken(name="last_pooling")(vectors, mask))


def _with_pooled(encoder: keras.Model, vectors: Any) -> keras.Model:
    return keras.Model(
        encoder.input, {**encoder.output, "pooled_output": vectors}, name=encoder.name
    )


@dataclass(frozen=True)
class EmbedderParts:
    """The arguments of `embedder`, recovered from the model that it built.

    Attributes:
        encoder: the model below the pooling, with the output `sequence_output`.
        pooling: the pooling's modes.
        projections: the layers between the pooling and the last one.
        normalize: whether vectors have length 1 before truncation.
        truncate_dim: how many leading dimensions are kept; None for all.
    """

    encoder: keras.Model
    pooling: tuple[str, ...]
    projections: tuple[keras.layers.Layer, ...]
    normalize: bool
    truncate_dim: int | None


def has_unit_vectors(model: keras.Model) -> bool:
    """Returns whether the last layer of a model scales its output `embedding` to length 1."""
    made_by = {id(outputs[0]): layer for layer, _, outputs in calls(model)}
    return isinstance(made_by[id(model.output["embedding"])], keras.layers.UnitNormalization)


def embedder_parts(model: keras.Model) -> EmbedderParts:
    """Takes apart a model from `embedder`."""
    made_by = {id(outputs[0]): (layer, inputs) for layer, inputs, outputs in calls(model)}
    layer, inputs = made_by[id(model.output["embedding"])]
    truncate_dim = layer.size if isinstance(layer, FirstDimensions) else None
    if truncate_dim is not None:
        layer, inputs = made_by[id(inputs[0])]
    normalize = isinstance(layer, keras.layers.UnitNormalization)
    projections: list[keras.layers.Layer] = []
    layer, inputs = made_by[id(inputs[0])]
    while len(inputs) == 1 and isinstance(layer, PROJECTIONS):
        projections.insert(0, layer)
        layer, inputs = made_by[id(inputs[0])]
    encoder = keras.Model(model.input, {"sequence_output": inputs[0]}, name=model.name)
    return EmbedderParts(encoder, layer.modes, tuple(projections), normalize, truncate_dim)
