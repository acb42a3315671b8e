"""Classifies text: one text or a pair in, its label and probabilities out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.confidence import Confidence
from keras_transformers.tasks.explaining import log_odds
from keras_transformers.tasks.long_texts import LongTextPipeline, LongTexts
from keras_transformers.tasks.pipeline import CLASSIFY, Signature
from keras_transformers.tasks.tf_examples import parsed, serialized
from keras_transformers.tasks.token_inputs import (
    checked_labels,
)
from keras_transformers.tasks.windows import Pooling
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["TextClassifier"]


class TextClassifier(LongTextPipeline):
    """Labels texts, or pairs of texts.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), with `pair` also text_b) -> label string (batch,),
      probabilities float32 (batch, classes), label_index int32 (batch,).
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same. It takes
      only the inputs that the model has, and rejects ids beyond the vocabulary and lengths beyond
      the model's positions.
    - classify(inputs string (batch,), serialized tf.Example with the features text, text_b) ->
      classes string, scores float32 (batch, classes), in the order of `labels`: for TF Serving's
      Classify API.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to logits
            (batch, classes); see `heads.classifier`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`,
            or the `tokenizers.NgramTokenizer` of `models.fasttext`.
        labels: the name of each class, in the order of the logits.
        max_sequence_length: maximum tokens in a packed row. Defaults to the model's number of
            positions; required if it has none.
        pair: whether a row is a pair of texts.
        long_texts: "cut" leaves out the end of longer rows. "windows" reads texts of any length, in
            windows of `max_sequence_length` tokens, each with its special tokens, and pools their
            logits. Of a pair, the first text is cut into windows, and each has all of the
            second, up to half of its tokens. Train the model the same way.
        window_pooling: "mean" over the windows, or "max".
        window_overlap: tokens that a window shares with the next; an eighth of
            `max_sequence_length` by default.
        temperature: divides the logits; above 1, probabilities are less sure. `fit` finds it with
            `calibrate=True`.
        abstain_below: adds the output `abstained` bool (batch,): whether the label's probability is
            below this.

    Raises:
        ValueError: model, tokenizer, labels and length do not match, or an option is out of range.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> model = kt.heads.classifier(encoder, 2)
        >>> classify = TextClassifier(model, tokenizer, ["negative", "positive"])
        >>> len(classify(["Good films!", "film"]))
        2
    """

    task = "classification"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        labels: Sequence[str],
        *,
        max_sequence_length: int | None = None,
        pair: bool = False,
        long_texts: LongTexts = "cut",
        window_pooling: Pooling = "mean",
        window_overlap: int | None = None,
        temperature: float = 1.0,
        abstain_below: float | None = None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            output="logits",
            max_sequence_length=max_sequence_length,
            pair=pair,
            long_texts=long_texts,
            window_pooling=window_pooling,
            window_overlap=window_overlap,
        )
        self.labels = checked_labels(labels, self.model)
        self.temperature, self.abstain_below = temperature, abstain_below
        self._confidence = Confidence(temperature, abstain_below)

    def interpret(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes label, probabilities and label_index from the logits (batch, classes)."""
        return labelled(output, self.labels, self._confidence)

    @property
    def explained(self) -> tuple[str, ...]:
        """The labels: explanations are of a label's log-odds."""
        return self.labels

    def explained_index(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the index of the likeliest label."""
        return tf.argmax(self.run_model(inputs)["logits"], axis=-1, output_type=tf.int32)

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes a label's log-odds."""
        return log_odds(self._confidence.calibrated(outputs["logits"]), index)

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return labelled_specs(self.labels, self._confidence)

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, and `classify` for TF Serving's Classify API."""
        return {
            **super().other_signatures(batches),
            "classify": classify_signature(self.answer, self.text_names, self.labels, batches),
        }

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {"labels": list(self.labels), **super().config(), **self._confidence.config()}


def labelled(
    logits: tf.Tensor, labels: Sequence[str], confidence: Confidence
) -> dict[str, tf.Tensor]:
    """Computes label, probabilities and label_index from logits (batch, classes), in the graph."""
    probabilities = tf.nn.softmax(confidence.calibrated(logits))
    label_index = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
    with tf.device("CPU:0"):  # string ops run only on the CPU
        label = tf.gather(tf.constant(labels), label_index)
    outputs = {"label": label, "probabilities": probabilities, "label_index": label_index}
    return {**outputs, **confidence.abstention(tf.reduce_max(probabilities, axis=-1))}


def labelled_specs(labels: Sequence[str], confidence: Confidence) -> dict[str, tf.TensorSpec]:
    """Returns the outputs of `labelled`: name -> tf.TensorSpec."""
    return {
        "label": tf.TensorSpec([None], tf.string),
        "probabilities": tf.TensorSpec([None, len(labels)], tf.float32),
        "label_index": tf.TensorSpec([None], tf.int32),
        **confidence.specs(),
    }


def classify_signature(
    answer: Callable[..., Mapping[str, tf.Tensor]],
    names: Sequence[str],
    labels: Sequence[str],
    batches: Sequence[Mapping[str, np.ndarray]],
) -> Signature:
    """Returns the signature for TF Serving's Classify API.

    Args:
        answer: a function with arguments `names` that returns what `labelled` does.
        names: the features of the tf.Examples.
        labels: the classes, in the order of the probabilities.
        batches: examples: name -> strings (batch,).
    """

    def classify(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            classes = tf.repeat(tf.constant([labels]), tf.size(inputs), axis=0)
        return {"classes": classes, "scores": answer(**parsed(inputs, names))["probabilities"]}

    ranked = {
        "classes": tf.TensorSpec([None, len(labels)], tf.string),
        "scores": tf.TensorSpec([None, len(labels)], tf.float32),
    }
    records = [serialized(batch) for batch in batches]
    return Signature(
        classify, {"inputs": tf.TensorSpec([None], tf.string)}, ranked, records, CLASSIFY
    )
