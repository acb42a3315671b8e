"""Classification of whole sequences."""

from typing import Any, NamedTuple

import keras

from keras_transformers.dependencies.private_api import calls
from keras_transformers.layers import LastToken
from keras_transformers.models import encoder_parts
from keras_transformers.models.anatomy import anatomy

__all__ = ["causal_classifier", "classifier", "paired_vectors"]


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


def paired_vectors(model: keras.Model) -> keras.Model:
    """Returns a model with the same layers, up to the last, that compares texts in pairs.

    Trained with `training.PairSimilarity`, it brings the vectors of texts with the same label
    together, for few-shot training (Tunstall et al. 2022, "SetFit", arXiv:2209.11055). They are the
    vectors that the classifier's last layer reads, before its dropout.

    Args:
        model: a classifier whose output `logits` comes from a `keras.layers.Dense`, such as one
            from `classifier`.

    Returns:
        A functional model with the inputs of `model`, (texts, length), and `pairs` int32 (batch,
        2), the rows of each pair's texts; and the output `vectors` float32 (batch, 2, width).

    Raises:
        ValueError: the logits come from another layer.

    Example:
        >>> import keras_transformers as kt
        >>> model = paired_vectors(classifier(kt.bert_tiny(vocabulary_size=11), 2))
        >>> model.output["vectors"].shape
        (None, 2, 128)
    """
    pairs = keras.Input((2,), dtype="int32", name="pairs")
    vectors = keras.ops.cast(last_dense(model).vectors, "float32")
    return keras.Model(
        {**model.input, "pairs": pairs},
        {"vectors": keras.ops.take(vectors, pairs, axis=0)},
        name=f"{model.name}_pairs",
    )


class LastDense(NamedTuple):
    """The last layer of a classifier, and what it reads.

    Attributes:
        layer: from vectors to logits.
        vectors: (batch, width), before dropout.
    """

    layer: keras.layers.Dense
    vectors: Any


def last_dense(model: keras.Model) -> LastDense:
    """Returns the dense layer that makes a classifier's logits; ValueError if none does."""
    made_by = {id(outputs[0]): (layer, inputs) for layer, inputs, outputs in calls(model)}
    layer, inputs = made_by[id(model.output["logits"])]
    is_linear = isinstance(layer, keras.layers.Dense) and layer.use_bias
    if not is_linear or layer.activation is not keras.activations.linear:
        raise ValueError(
            f"model {model.name!r} makes its logits with the layer {layer.name!r}, a "
            f"{type(layer).__name__}; expected a Dense layer with a bias and no activation: put "
            "heads.classifier on its encoder"
        )
    (vectors,) = inputs
    while isinstance(made_by[id(vectors)][0], keras.layers.Dropout):
        (vectors,) = made_by[id(vectors)][1]
    return LastDense(layer, vectors)
