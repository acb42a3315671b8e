"""Masked language modeling."""

import keras

from keras_transformers.layers import AddBias, GatherPositions
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.layers.tensors import Tensor
from keras_transformers.models import encoder_parts

__all__ = ["masked_lm"]


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
    return keras.Model(
        inputs={**encoder.input, "mask_positions": mask_positions},
        outputs={"mask_logits": mask_logits},
        name=name or f"{encoder.name}_masked_lm",
    )


def masked_lm_logits(
    encoder: keras.Model, mask_positions: Tensor, activation: Activation, norm_epsilon: float
) -> Tensor:
    """Applies dense layer, norm, tied projection and bias: (batch, masked, vocabulary).

    An encoder with the output `token_output` has its own dense layer and norm.
    """
    token_embedding = encoder_parts.token_embedding(encoder)
    gathered = GatherPositions(name="masked_lm_gather")(
        encoder_parts.token_vectors(encoder), mask_positions
    )
    if "token_output" in encoder.output:
        return AddBias(dtype="float32", name="mask_logits")(token_embedding(gathered, reverse=True))
    hidden = keras.layers.Dense(
        token_embedding.hidden_dim,
        activation=activation_function(activation),
        kernel_initializer=encoder_parts.initializer(),
        name="masked_lm_dense",
    )(gathered)
    hidden = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="masked_lm_norm")(hidden)
    return AddBias(dtype="float32", name="mask_logits")(token_embedding(hidden, reverse=True))
