"""Replaced token detection: ELECTRA's discriminator, and its training with a generator."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers import RowDense, SampleTokens
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.models import encoder_parts
from keras_transformers.models.anatomy import anatomy

__all__ = ["electra_pretrainer", "replaced_token_detector", "replaced_token_tagger"]


def replaced_token_detector(
    encoder: keras.Model, *, activation: Activation | None = None, name: str | None = None
) -> keras.Model:
    """Predicts whether each token was replaced: ELECTRA's discriminator.

    Clark et al. 2020, section 2; Hugging Face: ElectraForPreTraining.

    Args:
        encoder: a model with the output `sequence_output` (batch, length, hidden), such as one
            from `models.encoders.electra`.
        activation: activation of the head's first layer; by default that of the encoder's layers.
        name: the model's name; "<encoder>_replaced_token_detector" by default.

    Returns:
        A functional model with the encoder's inputs and the output `replaced_logits`
        (batch, length) in float32, above 0 where a token seems to be replaced.

    Raises:
        ValueError: the encoder lacks `sequence_output`.
    """
    sequence_output = encoder_parts.named_output(encoder, "sequence_output")
    if activation is None:
        activation = anatomy(encoder, "blocks").blocks[0].feed_forward.activation
    hidden = RowDense(
        sequence_output.shape[-1],
        activation=activation_function(activation),
        kernel_initializer=encoder_parts.initializer(),
        name="replaced_dense",
    )(sequence_output)
    logits = RowDense(
        1, kernel_initializer=encoder_parts.initializer(), dtype="float32", name="replaced_score"
    )(hidden)  # (batch, length, 1)
    logits = keras.layers.Reshape((-1,), dtype="float32", name="replaced_logits")(logits)
    outputs = {"replaced_logits": logits}
    return encoder_parts.model(encoder, encoder.input, outputs, name, "replaced_token_detector")


def replaced_token_tagger(detector: keras.Model, *, name: str | None = None) -> keras.Model:
    """Turns a detector into a tagger with two labels: original, replaced. Adds no weights.

    Args:
        detector: a model from `replaced_token_detector`.
        name: the model's name; "<detector>_tagger" by default.

    Returns:
        A functional model with the detector's inputs and the output `logits` (batch, length, 2),
        whose softmax is the detector's sigmoid.

    Raises:
        ValueError: the model is not a detector.
    """
    logits = encoder_parts.named_output(detector, "replaced_logits")
    outputs = {"logits": ops.stack([ops.zeros_like(logits), logits], axis=-1)}
    return encoder_parts.model(detector, detector.input, outputs, name, "tagger")


def electra_pretrainer(
    generator: keras.Model,
    detector: keras.Model,
    *,
    seed: int | None = None,
    name: str | None = None,
) -> keras.Model:
    """Trains ELECTRA: the generator fills masked words, the detector finds those that are wrong.

    Clark et al. 2020, section 2. Each masked token is replaced with a draw from the generator's
    distribution. No gradient flows back through the draws, so the generator learns only from its
    own loss. Compile with two losses, `TokenCrossentropy` for `mask_logits` and
    `ReplacedTokenCrossentropy` for `replaced`, and the paper's weight of 50 on the second.

    Save its weights, or the two models separately: a `.keras` file of the whole cannot be loaded,
    because Keras does not restore layers that two inner models share.

    Args:
        generator: a model from `masked_lm`, such as one on `models.encoders.electra_generator`.
        detector: a model from `replaced_token_detector`.
        seed: seed of the draws; see `layers.SampleTokens`.
        name: the model's name; "electra_pretrainer" by default.

    Returns:
        A functional model of both models. Inputs: the generator's; position 0 in
        `mask_positions` means none. Outputs in float32: `mask_logits` (batch, masked,
        vocabulary), and `replaced` (batch, length, 2): the logit that a token was replaced, and the
        id of that token, to compare with the original one.

    Raises:
        ValueError: a model lacks an output, or the detector has other inputs.

    Example:
        >>> from keras_transformers.families.electra.model import electra, electra_generator
        >>> from keras_transformers.heads import masked_lm
        >>> encoder = electra(vocabulary_size=100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> model = electra_pretrainer(
        ...     masked_lm(electra_generator(encoder)), replaced_token_detector(encoder)
        ... )
        >>> model.output["replaced"].shape
        (None, None, 2)
    """
    encoder_parts.named_output(generator, "mask_logits")
    encoder_parts.named_output(detector, "replaced_logits")
    inputs: dict[str, Any] = dict(generator.input)
    if set(detector.input) != set(inputs) - {"mask_positions"}:
        raise ValueError(
            f"model {detector.name!r} has the inputs {', '.join(detector.input)}, but "
            f"{generator.name!r} has {', '.join(inputs)}: build the generator for this encoder"
        )
    mask_logits = generator(inputs)["mask_logits"]
    token_ids = SampleTokens(seed, dtype="float32", name="sample_tokens")(
        inputs["token_ids"], inputs["mask_positions"], mask_logits
    )
    seen = {**{key: inputs[key] for key in detector.input}, "token_ids": token_ids}
    logits = detector(seen)["replaced_logits"]
    judged = ops.stack([logits, ops.cast(token_ids, "float32")], axis=-1)
    outputs = {"mask_logits": mask_logits, "replaced": judged}
    return keras.Model(inputs, outputs, name=name or "electra_pretrainer")
