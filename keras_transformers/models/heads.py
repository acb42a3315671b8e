"""What goes on top of an encoder: each head extends the encoder's own graph with a task's layers.

A head makes a new functional model that shares the encoder's layers and weights, flat: every layer
of the encoder keeps its name, so that weights load and parameters count the same way with and
without a head. Where an encoder came with trained weights they are used as they are.

Pretraining and embeddings stand here, the heads of tasks in `task_heads`.
"""

from typing import Any, Literal

import keras

from keras_transformers.layers import AddBias, GatherPositions
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.models import head_parts
from keras_transformers.models.task_heads import (
    classifier,
    multiple_choice,
    regressor,
    span_extractor,
    tagger,
)

__all__ = [
    "classifier",
    "embedder",
    "masked_lm",
    "multiple_choice",
    "pretrainer",
    "pretraining_parameters",
    "regressor",
    "span_extractor",
    "tagger",
]


def pretrainer(
    encoder: keras.Model,
    *,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    name: str | None = None,
) -> keras.Model:
    """BERT's two pretraining heads: masked language model and next sentence.

    Devlin et al. 2018, section 3.1; Hugging Face: BertForPreTraining. The masked-LM head projects
    with the token embeddings (tied) and looks at the masked positions alone.

    Args:
        encoder: a BERT encoder: outputs `sequence_output`, `pooled_output`, and a layer
            `token_embedding`.
        activation: of the masked-LM head's dense layer.
        norm_epsilon: of its norm.
        name: of the model, "<encoder>_pretrainer" by default.

    Returns:
        A functional model. Inputs: the encoder's and `mask_positions` int32 (batch, masked), the
        indices of the masked tokens. Outputs: `mask_logits` (batch, masked, vocabulary) and
        `next_sentence_logits` (batch, 2; class 0 is next, 1 random), in float32.

    Raises:
        ValueError: the encoder lacks an output or the token embedding.
    """
    mask_positions = keras.Input((None,), dtype="int32", name="mask_positions")
    mask_logits = _masked_lm_logits(encoder, mask_positions, activation, norm_epsilon)
    next_sentence_logits = keras.layers.Dense(
        2, kernel_initializer=head_parts.initializer(), dtype="float32", name="next_sentence_logits"
    )(head_parts.named_output(encoder, "pooled_output"))
    return keras.Model(
        inputs={**encoder.input, "mask_positions": mask_positions},
        outputs={"mask_logits": mask_logits, "next_sentence_logits": next_sentence_logits},
        name=name or f"{encoder.name}_pretrainer",
    )


def masked_lm(
    encoder: keras.Model,
    *,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    name: str | None = None,
) -> keras.Model:
    """The masked language model alone, without the pooler: `pretrainer` less next sentence.

    Hugging Face: BertForMaskedLM.

    Args:
        encoder: as `pretrainer` takes it.
        activation: of the head's dense layer.
        norm_epsilon: of its norm.
        name: of the model, "<encoder>_masked_lm" by default.

    Returns:
        A functional model. Inputs: the encoder's and `mask_positions` int32 (batch, masked).
        Output: `mask_logits` (batch, masked, vocabulary) in float32.

    Raises:
        ValueError: the encoder lacks `sequence_output` or the token embedding.
    """
    mask_positions = keras.Input((None,), dtype="int32", name="mask_positions")
    mask_logits = _masked_lm_logits(encoder, mask_positions, activation, norm_epsilon)
    return keras.Model(
        inputs={**encoder.input, "mask_positions": mask_positions},
        outputs={"mask_logits": mask_logits},
        name=name or f"{encoder.name}_masked_lm",
    )


def embedder(
    encoder: keras.Model,
    *,
    pooling: Literal["mean", "cls"] = "mean",
    normalize: bool = True,
    name: str | None = None,
) -> keras.Model:
    """One vector a text, such that close vectors are close texts once it is trained to that end.

    Reimers & Gurevych 2019, "Sentence-BERT", arXiv:1908.10084, section 3. No weights of its own.

    Args:
        encoder: a model with the input `padding_mask` and the output `sequence_output`.
        pooling: "mean" of the vectors of all real tokens, [CLS] and [SEP] included; "cls" takes
            the vector of the first, as it leaves the last layer, before BERT's pooler.
        normalize: to length 1, so that a dot product is a cosine.
        name: of the model, "<encoder>_embedder" by default.

    Returns:
        A functional model with the encoder's inputs and the output `embedding` (batch, hidden) in
        float32. A row of padding alone has no mean: NaN.

    Raises:
        ValueError: an encoder without that input or output, or another `pooling`.
    """
    sequence_output = head_parts.named_output(encoder, "sequence_output")
    if pooling == "mean":
        mask = head_parts.padding_mask(encoder, remedy="pooling='cls' or ")
        pooled = keras.layers.GlobalAveragePooling1D(dtype="float32", name="mean_pooling")(
            sequence_output, mask=mask
        )
    elif pooling == "cls":
        pooled = sequence_output[:, 0]
    else:
        raise ValueError(f"pooling={pooling!r}: take 'mean' or 'cls'")
    last = keras.layers.UnitNormalization if normalize else keras.layers.Identity
    return keras.Model(
        inputs=encoder.input,
        outputs={"embedding": last(dtype="float32", name="embedding")(pooled)},
        name=name or f"{encoder.name}_embedder",
    )


def pretraining_parameters(*, vocabulary_size: int, hidden_dim: int) -> int:
    """What `pretrainer` adds to an encoder, by arithmetic: dense, norm, bias; two classes."""
    h = hidden_dim
    return (h * h + h) + 2 * h + vocabulary_size + (2 * h + 2)


def _masked_lm_logits(
    encoder: keras.Model, mask_positions: Any, activation: Activation, norm_epsilon: float
) -> Any:
    """Dense, norm, tied projection, bias at masked positions: (batch, masked, vocabulary)."""
    token_embedding = head_parts.token_embedding(encoder)
    gathered = GatherPositions(name="masked_lm_gather")(
        head_parts.named_output(encoder, "sequence_output"), mask_positions
    )
    hidden = keras.layers.Dense(
        token_embedding.hidden_dim,
        activation=activation_function(activation),
        kernel_initializer=head_parts.initializer(),
        name="masked_lm_dense",
    )(gathered)
    hidden = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="masked_lm_norm")(hidden)
    return AddBias(dtype="float32", name="mask_logits")(token_embedding(hidden, reverse=True))
