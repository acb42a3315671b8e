"""Classification of whole sequences."""

import keras

from keras_transformers.layers import LastToken
from keras_transformers.models import encoder_parts
from keras_transformers.models.anatomy import anatomy

__all__ = ["causal_classifier", "classifier"]


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


def causal_classifier(
    model: keras.Model, num_classes: int, *, dropout: float = 0.1, name: str | None = None
) -> keras.Model:
    """Classifies whole texts with a language model that still predicts their tokens.

    Radford et al. 2018, section 3.2: a linear layer on the last token's vector, with the language
    model's loss as an auxiliary loss of half the weight:

        classifier.compile(
            optimizer,
            loss={
                "logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                "token_logits": TokenCrossentropy(),
            },
            loss_weights={"logits": 1.0, "token_logits": 0.5},
        )

    Args:
        model: a causal language model such as GPT, usually trained.
        num_classes: number of classes, at least 2.
        dropout: rate on the last token's vector.
        name: the model's name; "<model>_classifier" by default.

    Returns:
        A functional model. Inputs: those of `model`, and `padding_mask` bool (batch, length), True
        at real tokens. Outputs: `logits` float32 (batch, num_classes), from the last real token,
        and `token_logits`, the language model's logits.

    Raises:
        ValueError: fewer than two classes, or the model does not predict tokens.
    """
    if num_classes < 2:
        raise ValueError(f"num_classes={num_classes}: a classifier needs at least 2 classes")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    vectors = LastToken(name="last_token")(anatomy(model, "projection").projected, padding_mask)
    vectors = keras.layers.Dropout(dropout, name="classifier_dropout")(vectors)
    logits = keras.layers.Dense(
        num_classes, kernel_initializer=encoder_parts.initializer(), dtype="float32", name="logits"
    )(vectors)
    return keras.Model(
        inputs={**model.input, "padding_mask": padding_mask},
        outputs={"logits": logits, "token_logits": model.output["logits"]},
        name=name or f"{model.name}_classifier",
    )
