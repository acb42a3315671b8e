"""Masked language modeling, alone and with BERT's other pretraining head."""

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import AddBias, GatherPositions
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.models import encoder_parts

__all__ = ["masked_lm", "pretrainer", "pretraining_parameters"]

# The tasks of the heads that `pretrainer` adds.
BOTH_HEADS = frozenset({"fill_mask", "next_sentence"})


def masked_lm(
    encoder: keras.Model,
    *,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    name: str | None = None,
) -> keras.Model:
    """Predicts only masked words: `pretrainer` without next sentences and the pooler.

    Hugging Face: BertForMaskedLM.

    Args:
        encoder: a model with the output `sequence_output` and a layer `token_embedding`.
        activation: activation of the head's dense layer.
        norm_epsilon: added to the variance in the head's norm.
        name: the model's name; "<encoder>_masked_lm" by default.

    Returns:
        A functional model. Inputs: the encoder's, and `mask_positions` int32 (batch, masked).
        Output: `mask_logits` (batch, masked, vocabulary) in float32.

    Raises:
        ValueError: the encoder lacks `sequence_output` or the token embedding.
    """
    mask_positions = keras.Input((None,), dtype="int32", name="mask_positions")
    mask_logits = masked_lm_logits(encoder, mask_positions, activation, norm_epsilon)
    inputs = {**encoder.input, "mask_positions": mask_positions}
    return encoder_parts.model(encoder, inputs, {"mask_logits": mask_logits}, name, "masked_lm")


def masked_lm_logits(
    encoder: keras.Model, mask_positions: Tensor, activation: Activation, norm_epsilon: float
) -> Tensor:
    """Applies dense layer, norm, tied projection and bias: (batch, masked, vocabulary).

    An encoder with the output `token_output` has its own dense layer and norm.
    """
    gathered = GatherPositions(name="masked_lm_gather")(
        encoder_parts.token_vectors(encoder), mask_positions
    )
    projected = vocabulary_projection(encoder, gathered, activation, norm_epsilon)
    return AddBias(dtype="float32", name="mask_logits")(projected)


def vocabulary_projection(
    encoder: keras.Model, vectors: Tensor, activation: Activation, norm_epsilon: float
) -> Tensor:
    """Applies all of the head but the bias: (batch, n, hidden) to (batch, n, vocabulary)."""
    token_embedding = encoder_parts.token_embedding(encoder)
    if "token_output" not in encoder.output:
        vectors = keras.layers.Dense(
            token_embedding.hidden_dim,
            activation=activation_function(activation),
            kernel_initializer=encoder_parts.initializer(),
            name="masked_lm_dense",
        )(vectors)
        vectors = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="masked_lm_norm")(
            vectors
        )
    return token_embedding(vectors, reverse=True)


def pretrainer(
    encoder: keras.Model,
    *,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    name: str | None = None,
) -> keras.Model:
    """Predicts masked words and whether the second text follows the first.

    Devlin et al. 2018, section 3.1; Hugging Face: BertForPreTraining. The masked-LM head projects
    with the token embeddings (tied) and reads only the masked positions.

    Args:
        encoder: a BERT encoder, with the outputs `sequence_output` and `pooled_output` and the
            layer `token_embedding`.
        activation: activation of the masked-LM head's dense layer.
        norm_epsilon: added to the variance in that head's norm.
        name: the model's name; "<encoder>_pretrainer" by default.

    Returns:
        A functional model. Inputs: the encoder's, and `mask_positions` int32 (batch, masked), the
        indices of the masked tokens. Outputs: `mask_logits` (batch, masked, vocabulary) and
        `next_sentence_logits` (batch, 2; class 0 is next, 1 random), in float32.

    Raises:
        ValueError: the encoder lacks an output or the token embedding.
    """
    mask_positions = keras.Input((None,), dtype="int32", name="mask_positions")
    mask_logits = masked_lm_logits(encoder, mask_positions, activation, norm_epsilon)
    next_sentence_logits = keras.layers.Dense(
        2,
        kernel_initializer=encoder_parts.initializer(),
        dtype="float32",
        name="next_sentence_logits",
    )(encoder_parts.named_output(encoder, "pooled_output"))
    inputs = {**encoder.input, "mask_positions": mask_positions}
    outputs = {"mask_logits": mask_logits, "next_sentence_logits": next_sentence_logits}
    return encoder_parts.model(encoder, inputs, outputs, name, "pretrainer")


def pretraining_parameters(*, vocabulary_size: int, hidden_dim: int) -> int:
    """Computes how many parameters `pretrainer` adds to an encoder, without building it."""
    h = hidden_dim
    return (h * h + h) + 2 * h + vocabulary_size + (2 * h + 2)  # dense, norm, bias; two classes
