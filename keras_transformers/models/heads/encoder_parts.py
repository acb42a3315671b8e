"""What heads take from an encoder, each asked for by its name and refused with a remedy."""

from typing import Any

import keras

from keras_transformers.layers import FirstTokenPooler


def initializer() -> keras.initializers.Initializer:
    """That of BERT's matrices."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


def named_output(encoder: keras.Model, key: str) -> Any:
    """The encoder's output of that name; ValueError without it."""
    outputs = getattr(encoder, "output", None)
    if not isinstance(outputs, dict) or key not in outputs:
        found = ", ".join(outputs) if isinstance(outputs, dict) else "no named outputs"
        raise ValueError(
            f"model {encoder.name!r} has no output {key!r} (it has {found}); "
            "a head needs an encoder such as keras_transformers.bert_base()"
        )
    return outputs[key]


def pooled(encoder: keras.Model, outputs: Any = None) -> Any:
    """One vector a sequence, (batch, hidden): the encoder's own or that of a new pooler.

    Args:
        encoder: what has the outputs `pooled_output`, or `sequence_output` alone.
        outputs: those of the encoder on other inputs than its own.

    Raises:
        ValueError: it has neither.
    """
    own: Any = getattr(encoder, "output", None)
    if isinstance(own, dict) and "sequence_output" in own and "pooled_output" not in own:
        hidden = (outputs or own)["sequence_output"]
        return FirstTokenPooler(
            hidden.shape[-1], activation="tanh", kernel_initializer=initializer(), name="pooler"
        )(hidden)
    own_pooled = named_output(encoder, "pooled_output")
    return own_pooled if outputs is None else outputs["pooled_output"]


def padding_mask(encoder: keras.Model, *, remedy: str = "") -> Any:
    """The encoder's input of that name; ValueError without it, which tells `remedy` too."""
    if not isinstance(encoder.input, dict) or "padding_mask" not in encoder.input:
        raise ValueError(
            f"model {encoder.name!r} has no input 'padding_mask', without which padding would "
            f"count like text: take {remedy}an encoder such as keras_transformers.bert_base()"
        )
    return encoder.input["padding_mask"]


def token_embedding(encoder: keras.Model) -> Any:
    """The encoder's layer of that name; ValueError without it."""
    for layer in encoder.layers:
        if layer.name == "token_embedding":
            return layer
    raise ValueError(
        f"model {encoder.name!r} has no layer 'token_embedding': the masked-LM head is tied to it"
    )


def score(pooled: Any, dropout: float) -> Any:
    """One number a vector: (rows, hidden) to (rows, 1)."""
    vectors = keras.layers.Dropout(dropout, name="score_dropout")(pooled)
    return keras.layers.Dense(
        1, kernel_initializer=initializer(), dtype="float32", name="score_dense"
    )(vectors)


def model(
    encoder: keras.Model, inputs: Any, outputs: dict[str, Any], name: str | None, head: str
) -> keras.Model:
    """The functional model of an encoder's graph and a head's outputs."""
    return keras.Model(inputs=inputs, outputs=outputs, name=name or f"{encoder.name}_{head}")
