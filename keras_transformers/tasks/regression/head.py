"""Regression: one number per sequence."""

import keras

from keras_transformers.models import encoder_parts

__all__ = ["regressor"]


def regressor(
    encoder: keras.Model, *, dropout: float = 0.1, name: str | None = None
) -> keras.Model:
    """Predicts one number per sequence, such as the similarity of two texts.

    A `classifier` with a single output. Devlin et al. 2018, section 4.1 (STS-B, trained with the
    mean squared error); Hugging Face: BertForSequenceClassification with num_labels=1.

    Args:
        encoder: see `classifier`.
        dropout: rate on the pooled output.
        name: the model's name; "<encoder>_regressor" by default.

    Returns:
        A functional model with the encoder's inputs and the output `score` (batch,) in float32.

    Raises:
        ValueError: an encoder with neither `pooled_output` nor `sequence_output`.
    """
    score = encoder_parts.score(encoder_parts.pooled(encoder), dropout)  # (batch, 1)
    score = keras.layers.Reshape((), dtype="float32", name="score")(score)
    return encoder_parts.model(encoder, encoder.input, {"score": score}, name, "regressor")


def scaled(model: keras.Model, *, scale: float, offset: float) -> keras.Model:
    """Returns a regressor with `score * scale + offset` as its score, sharing the encoder.

    Args:
        model: a model from `regressor`.
        scale: the factor.
        offset: added afterwards.
    """
    last = model.get_layer("score_dense")
    kernel, bias = (keras.ops.convert_to_numpy(variable) for variable in last.weights)
    dense = keras.layers.Dense.from_config(last.get_config())
    reshape = keras.layers.Reshape.from_config(model.get_layer("score").get_config())
    score = reshape(dense(last.input))
    dense.set_weights([kernel * scale, bias * scale + offset])
    return keras.Model(model.input, {"score": score}, name=model.name)
