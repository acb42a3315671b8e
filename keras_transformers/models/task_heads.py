"""The tasks of the BERT paper on any encoder: labels and scores of texts, choices, words, spans.

To be had as `heads.classifier` and so on. Each takes what it needs of the encoder's graph and no
more: the heads on tokens leave BERT's pooler out.
"""

from typing import Any

import keras

from keras_transformers.layers import RowDense
from keras_transformers.layers.task_outputs import ChoicesToRows, RowsToChoices, StartsAndEnds
from keras_transformers.models import head_parts


def classifier(
    encoder: keras.Model,
    num_classes: int,
    *,
    dropout: float = 0.1,
    name: str | None = None,
) -> keras.Model:
    """Classification of whole sequences: dropout and a dense layer on the pooled output.

    Devlin et al. 2018, section 4.1; Hugging Face: BertForSequenceClassification.

    Args:
        encoder: a model with the output `pooled_output` (batch, hidden). One with
            `sequence_output` (batch, length, hidden) alone gets a pooler like BERT's, with new
            weights: dense and tanh on the first token.
        num_classes: how many classes, at least 2.
        dropout: rate on the pooled output.
        name: of the model, "<encoder>_classifier" by default.

    Returns:
        A functional model with the encoder's inputs and the output `logits`
        (batch, num_classes) in float32.

    Raises:
        ValueError: fewer than two classes, or an encoder with neither output.
    """
    if num_classes < 2:
        raise ValueError(f"num_classes={num_classes}: a classifier tells at least 2 classes apart")
    vectors = keras.layers.Dropout(dropout, name="classifier_dropout")(head_parts.pooled(encoder))
    logits = keras.layers.Dense(
        num_classes, kernel_initializer=head_parts.initializer(), dtype="float32", name="logits"
    )(vectors)
    return _model(encoder, encoder.input, {"logits": logits}, name, "classifier")


def regressor(
    encoder: keras.Model, *, dropout: float = 0.1, name: str | None = None
) -> keras.Model:
    """One number a sequence, such as how alike two texts are: `classifier` with a single output.

    Devlin et al. 2018, section 4.1 (STS-B), where the loss is the mean squared error; Hugging Face:
    BertForSequenceClassification with num_labels=1.

    Args:
        encoder: as `classifier` takes it.
        dropout: rate on the pooled output.
        name: of the model, "<encoder>_regressor" by default.

    Returns:
        A functional model with the encoder's inputs and the output `score` (batch,) in float32.

    Raises:
        ValueError: an encoder with neither `pooled_output` nor `sequence_output`.
    """
    score = _score(head_parts.pooled(encoder), dropout)  # (batch, 1)
    score = keras.layers.Reshape((), dtype="float32", name="score")(score)
    return _model(encoder, encoder.input, {"score": score}, name, "regressor")


def multiple_choice(
    encoder: keras.Model, *, dropout: float = 0.1, name: str | None = None
) -> keras.Model:
    """Which of several texts fits: the encoder reads each choice, a score from each pooled output.

    Devlin et al. 2018, section 4.4 (SWAG); Hugging Face: BertForMultipleChoice. A choice is what
    the encoder reads at once, as a rule the common text and one possible end of it. Rows with
    fewer choices than others need a mask in the loss.

    Args:
        encoder: as `classifier` takes it, with named inputs (batch, length).
        dropout: rate on the pooled outputs.
        name: of the model, "<encoder>_multiple_choice" by default.

    Returns:
        A functional model. Inputs: the encoder's names, (batch, choices, length). Output: `logits`
        (batch, choices) in float32.

    Raises:
        ValueError: an encoder with neither `pooled_output` nor `sequence_output`, or without named
            inputs.
    """
    if not isinstance(getattr(encoder, "input", None), dict):
        raise ValueError(
            f"model {encoder.name!r} has no named inputs; "
            "a head needs an encoder such as keras_transformers.bert_base()"
        )
    inputs = {
        key: keras.Input((None, *tensor.shape[1:]), dtype=tensor.dtype, name=key)
        for key, tensor in encoder.input.items()
    }
    to_rows = ChoicesToRows(name="choices_to_rows")
    # `call`, not the model itself: that would nest the encoder, whose layers are to stay in sight.
    outputs = encoder.call({key: to_rows(tensor) for key, tensor in inputs.items()})
    scores = _score(head_parts.pooled(encoder, outputs), dropout)  # (batch * choices, 1)
    logits = RowsToChoices(dtype="float32", name="logits")(scores, next(iter(inputs.values())))
    return _model(encoder, inputs, {"logits": logits}, name, "multiple_choice")


def tagger(
    encoder: keras.Model,
    num_labels: int,
    *,
    dropout: float = 0.1,
    name: str | None = None,
) -> keras.Model:
    """A label for each token: dropout and a dense layer on the sequence output.

    Devlin et al. 2018, section 5.3; Hugging Face: BertForTokenClassification. `data.tagging` puts a
    word's label on its first piece.

    Args:
        encoder: a model with the output `sequence_output` (batch, length, hidden).
        num_labels: how many labels, at least 2.
        dropout: rate on the sequence output.
        name: of the model, "<encoder>_tagger" by default.

    Returns:
        A functional model with the encoder's inputs and the output `logits`
        (batch, length, num_labels) in float32. A pooler is no part of it.

    Raises:
        ValueError: fewer than two labels, or an encoder without a sequence output.
    """
    if num_labels < 2:
        raise ValueError(f"num_labels={num_labels}: a tagger tells at least 2 labels apart")
    vectors = keras.layers.Dropout(dropout, name="tagger_dropout")(
        head_parts.named_output(encoder, "sequence_output")
    )
    logits = RowDense(
        num_labels, kernel_initializer=head_parts.initializer(), dtype="float32", name="logits"
    )(vectors)
    return _model(encoder, encoder.input, {"logits": logits}, name, "tagger")


def span_extractor(encoder: keras.Model, *, name: str | None = None) -> keras.Model:
    """Where a span begins and ends, such as the answer to a question in the text behind it.

    Devlin et al. 2018, section 4.2; Hugging Face: BertForQuestionAnswering, which leaves the
    logits of padding as they come. No dropout but the encoder's, as in both.

    Args:
        encoder: a model with the input `padding_mask` and the output `sequence_output`
            (batch, length, hidden).
        name: of the model, "<encoder>_span_extractor" by default.

    Returns:
        A functional model with the encoder's inputs and the outputs `start_logits` and
        `end_logits`, each (batch, length) in float32, -1e9 at padding. A pooler is no part of it.

    Raises:
        ValueError: the encoder lacks that input or output.
    """
    logits = RowDense(
        2, kernel_initializer=head_parts.initializer(), dtype="float32", name="span_logits"
    )(head_parts.named_output(encoder, "sequence_output"))
    start, end = StartsAndEnds(dtype="float32", name="starts_and_ends")(
        logits, head_parts.padding_mask(encoder)
    )
    outputs = {"start_logits": start, "end_logits": end}
    return _model(encoder, encoder.input, outputs, name, "span_extractor")


def _score(pooled: Any, dropout: float) -> Any:
    """One number a vector: (rows, hidden) to (rows, 1)."""
    vectors = keras.layers.Dropout(dropout, name="score_dropout")(pooled)
    return keras.layers.Dense(
        1, kernel_initializer=head_parts.initializer(), dtype="float32", name="score_dense"
    )(vectors)


def _model(
    encoder: keras.Model, inputs: Any, outputs: dict[str, Any], name: str | None, head: str
) -> keras.Model:
    return keras.Model(inputs=inputs, outputs=outputs, name=name or f"{encoder.name}_{head}")
