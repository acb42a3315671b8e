"""Finds the parts of an encoder that heads need; errors say what is missing and the remedy."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import FirstTokenPooler, TokenEmbedding
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.classes.headed_encoder import HeadedEncoder

__all__ = ["pooled"]


def initializer() -> keras.initializers.Initializer:
    """Returns the initializer of BERT's matrices."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


def named_output(encoder: keras.Model, key: str) -> Tensor:
    """Returns the encoder's output `key`, or raises ValueError if it has none."""
    outputs = getattr(encoder, "output", None)
    if not isinstance(outputs, dict) or key not in outputs:
        names = ", ".join(outputs) if isinstance(outputs, dict) else "no named outputs"
        raise ValueError(
            f"model {encoder.name!r} has no output {key!r} (it has {names}): "
            "use an encoder such as keras_transformers.bert_base()"
        )
    return outputs[key]


def token_vectors(encoder: keras.Model) -> Tensor:
    """Returns the vectors (batch, length, hidden) that heads on tokens read.

    They are the encoder's output `token_output`, if its family has layers between the encoder and
    such heads, or else `sequence_output`.

    Raises:
        ValueError: the encoder has neither output.
    """
    outputs = getattr(encoder, "output", None)
    has_own = isinstance(outputs, dict) and "token_output" in outputs
    return named_output(encoder, "token_output" if has_own else "sequence_output")


def pooled(encoder: keras.Model, outputs: Mapping[str, Tensor] | None = None) -> Tensor:
    """Returns one vector per sequence (batch, hidden), from the encoder's pooler or a new one.

    Args:
        encoder: a model with the output `pooled_output`, or with `sequence_output` only.
        outputs: the encoder's outputs for other inputs; by default its own outputs.

    Raises:
        ValueError: the encoder has neither output.
    """
    output: Any = getattr(encoder, "output", None)
    if isinstance(output, dict) and "sequence_output" in output and "pooled_output" not in output:
        hidden = (outputs or output)["sequence_output"]
        return FirstTokenPooler(
            hidden.shape[-1], activation="tanh", kernel_initializer=initializer(), name="pooler"
        )(hidden)
    own_pooled = named_output(encoder, "pooled_output")
    return own_pooled if outputs is None else outputs["pooled_output"]


def padding_mask(encoder: keras.Model, *, remedy: str = "") -> Tensor:
    """Returns the encoder's input `padding_mask`, or raises ValueError, which suggests `remedy`."""
    if not isinstance(encoder.input, dict) or "padding_mask" not in encoder.input:
        raise ValueError(
            f"model {encoder.name!r} has no input 'padding_mask', so padding would count as text: "
            f"use {remedy}an encoder such as keras_transformers.bert_base()"
        )
    return encoder.input["padding_mask"]


def token_embedding(encoder: keras.Model) -> TokenEmbedding:
    """Returns the encoder's `TokenEmbedding`, or raises ValueError if it has none."""
    embedding = anatomy(encoder, "token_embedding").token_embedding
    if not isinstance(embedding, TokenEmbedding):
        raise ValueError(
            f"model {encoder.name!r} embeds tokens with a {type(embedding).__name__}, but the "
            "masked-LM head projects with the same matrix: use a layers.TokenEmbedding"
        )
    return embedding


def score(pooled: Tensor, dropout: float) -> Tensor:
    """Scores each vector: (rows, hidden) to (rows, 1)."""
    vectors = keras.layers.Dropout(dropout, name="score_dropout")(pooled)
    return keras.layers.Dense(
        1, kernel_initializer=initializer(), dtype="float32", name="score_dense"
    )(vectors)


def model(
    encoder: keras.Model,
    inputs: dict[str, Tensor],
    outputs: dict[str, Tensor],
    name: str | None,
    head: str,
) -> keras.Model:
    """Builds a functional model from an encoder's graph and a head's outputs."""
    return HeadedEncoder(inputs=inputs, outputs=outputs, name=name or f"{encoder.name}_{head}")
