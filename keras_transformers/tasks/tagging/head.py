"""Tagging: a label for each token."""

import keras

from keras_transformers.layers import RowDense
from keras_transformers.models import encoder_parts

__all__ = ["tagger"]


def tagger(
    encoder: keras.Model,
    num_labels: int,
    *,
    dropout: float = 0.1,
    name: str | None = None,
) -> keras.Model:
    """Labels each token: dropout and a dense layer on the sequence output.

    Devlin et al. 2018, section 5.3; Hugging Face: BertForTokenClassification.
    `data.text.tagging` puts a word's label on its first piece.

    Args:
        encoder: a model with the output `sequence_output` (batch, length, hidden).
        num_labels: number of labels, at least 2.
        dropout: rate on the sequence output.
        name: the model's name; "<encoder>_tagger" by default.

    Returns:
        A functional model with the encoder's inputs and the output `logits`
        (batch, length, num_labels) in float32. The encoder's pooler is left out.

    Raises:
        ValueError: fewer than two labels, or an encoder without `sequence_output`.
    """
    if num_labels < 2:
        raise ValueError(f"num_labels={num_labels}: a tagger needs at least 2 labels")
    vectors = keras.layers.Dropout(dropout, name="tagger_dropout")(
        encoder_parts.token_vectors(encoder)
    )
    logits = RowDense(
        num_labels, kernel_initializer=encoder_parts.initializer(), dtype="float32", name="logits"
    )(vectors)
    return encoder_parts.model(encoder, encoder.input, {"logits": logits}, name, "tagger")
