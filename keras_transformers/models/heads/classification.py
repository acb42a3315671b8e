"""Classification of whole sequences."""

import keras

from keras_transformers.models.heads import encoder_parts

__all__ = ["classifier"]


def classifier(
    encoder: keras.Model,
    num_classes: int,
    *,
    dropout: float = 0.1,
    name: str | None = None,
) -> keras.Model:
    """Classifies whole sequences: dropout and a dense layer on the pooled output.

    Devlin et al. 2018, section 4.1; Hugging Face: BertForSequenceClassification.

    Args:
        encoder: a model with the output `pooled_output` (batch, hidden). If it has only
            `sequence_output` (batch, length, hidden), it gets a new pooler like BERT's: a dense
            layer with tanh on the first token.
        num_classes: number of classes, at least 2.
        dropout: rate on the pooled output.
        name: the model's name; "<encoder>_classifier" by default.

    Returns:
        A functional model with the encoder's inputs and the output `logits`
        (batch, num_classes) in float32.

    Raises:
        ValueError: fewer than two classes, or an encoder with neither output.
    """
    if num_classes < 2:
        raise ValueError(f"num_classes={num_classes}: a classifier needs at least 2 classes")
    vectors = keras.layers.Dropout(dropout, name="classifier_dropout")(
        encoder_parts.pooled(encoder)
    )
    logits = keras.layers.Dense(
        num_classes, kernel_initializer=encoder_parts.initializer(), dtype="float32", name="logits"
    )(vectors)
    return encoder_parts.model(encoder, encoder.input, {"logits": logits}, name, "classifier")
