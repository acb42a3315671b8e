"""Embedding: one vector per text."""

from typing import Any, Literal

import keras

from keras_transformers.models.heads import encoder_parts

__all__ = ["embedder", "with_mean_pooling"]


def embedder(
    encoder: keras.Model,
    *,
    pooling: Literal["mean", "cls"] = "mean",
    normalize: bool = True,
    name: str | None = None,
) -> keras.Model:
    """Maps each text to one vector; after training, similar texts get similar vectors.

    Reimers & Gurevych 2019, "Sentence-BERT", arXiv:1908.10084, section 3. Adds no weights.

    Args:
        encoder: a model with the input `padding_mask` and the output `sequence_output`.
        pooling: "mean" averages the vectors of all real tokens, [CLS] and [SEP] included; "cls"
            takes the first token's vector from the last layer, before BERT's pooler.
        normalize: whether to scale vectors to length 1, so that a dot product is a cosine.
        name: the model's name; "<encoder>_embedder" by default.

    Returns:
        A functional model with the encoder's inputs and the output `embedding` (batch, hidden) in
        float32. The mean of a row that is all padding is NaN.

    Raises:
        ValueError: the encoder lacks that input or output, or `pooling` is unknown.
    """
    sequence_output = encoder_parts.named_output(encoder, "sequence_output")
    if pooling == "mean":
        mask = encoder_parts.padding_mask(encoder, remedy="pooling='cls' or ")
        pooled = keras.layers.GlobalAveragePooling1D(dtype="float32", name="mean_pooling")(
            sequence_output, mask=mask
        )
    elif pooling == "cls":
        pooled = sequence_output[:, 0]
    else:
        raise ValueError(f"pooling={pooling!r} is unknown: use 'mean' or 'cls'")
    last = keras.layers.UnitNormalization if normalize else keras.layers.Identity
    return keras.Model(
        inputs=encoder.input,
        outputs={"embedding": last(dtype="float32", name="embedding")(pooled)},
        name=name or f"{encoder.name}_embedder",
    )


def with_mean_pooling(encoder: keras.Model) -> keras.Model:
    """Returns the encoder with the mean of its real tokens as `pooled_output`, not its pooler.

    Encoders that were trained to embed sentences, such as all-MiniLM-L6-v2, never trained a pooler.

    Args:
        encoder: see `embedder`.

    Raises:
        ValueError: the encoder lacks that input or output.
    """
    mask = encoder_parts.padding_mask(encoder)
    vectors = encoder_parts.named_output(encoder, "sequence_output")
    mean = keras.layers.GlobalAveragePooling1D(name="mean_pooling")(vectors, mask=mask)
    return keras.Model(encoder.input, {**encoder.output, "pooled_output": mean}, name=encoder.name)


def embedder_options(model: keras.Model) -> dict[str, Any]:
    """Returns the `pooling` and `normalize` with which `embedder` built a model."""
    layers = {layer.name: layer for layer in model.layers}
    return {
        "pooling": "mean" if "mean_pooling" in layers else "cls",
        "normalize": isinstance(layers["embedding"], keras.layers.UnitNormalization),
    }
