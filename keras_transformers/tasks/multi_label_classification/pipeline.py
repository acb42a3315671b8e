"""Classifies text with many labels: one text or a pair in, labels and probabilities out."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.classification.pipeline import classify_signature
from keras_transformers.tasks.confidence import Confidence
from keras_transformers.tasks.long_texts import LongTextPipeline, LongTexts
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.token_inputs import checked_labels
from keras_transformers.tasks.windows import Pooling
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["MultiLabelClassifier"]


class MultiLabelClassifier(LongTextPipeline):
    """Assigns any number of labels to texts or pairs of texts.

    A label's probability is the sigmoid of its logit, independent of the other labels. Train the
    model with `keras.losses.BinaryCrossentropy(from_logits=True)` on a 0 or 1 per label.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), with `pair` also text_b) -> labels string (batch,
      largest num_labels), the most likely first, padded with ""; num_labels int32 (batch,);
      probabilities float32 (batch, classes), in the order of `labels`.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same. It takes
      only the inputs that the model has, and rejects ids beyond the vocabulary and lengths beyond
      the model's positions.
    - classify(inputs string (batch,), serialized tf.Example with the features text, text_b) ->
      classes string, scores float32 (batch, classes), in the order of `labels`: for TF Serving's
      Classify API.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to logits
            (batch, classes); see `heads.classifier`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        labels: the name of each class, in the order of the logits.
        thresholds: the probability above which a text gets a label, from 0 to 1: one for all
            labels, or one per label.
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
        abstain_below: adds the output `abstained` bool (batch,): whether a text's having, or not
            having, one of the labels is less probable than this.

    Raises:
        ValueError: model, tokenizer, labels, thresholds and length do not match, or an option is
            out of range.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> model = kt.heads.classifier(encoder, 3)
        >>> classify = MultiLabelClassifier(model, tokenizer, ["joy", "anger", "surprise"])
        >>> len(classify("Good films!").probabilities)
        3
    """

    task = "multi_label_classification"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        labels: Sequence[str],
        *,
        thresholds: float | Sequence[float] = 0.5,
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
        self.thresholds = _checked_thresholds(thresholds, self.labels)

    def interpret(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes labels, num_labels and probabilities from the logits (batch, classes)."""
        probabilities = tf.sigmoid(self._confidence.calibrated(output))
        has = probabilities > tf.constant(self.thresholds)  # (batch, classes)
        num_labels = tf.reduce_sum(tf.cast(has, tf.int32), axis=1)  # (batch,)
        # The labels that a text has come first, the most likely before the others.
        order = tf.argsort(tf.where(has, probabilities, -1.0), direction="DESCENDING", stable=True)
        order = order[:, : tf.reduce_max(tf.concat([num_labels, [0]], axis=0))]
        with tf.device("CPU:0"):  # string ops run only on the CPU
            names = tf.gather(tf.constant(self.labels), order)
            labels = tf.where(tf.gather(has, order, batch_dims=1), names, "")
        # How probable it is that a text has the label, or has it not: the least of all labels.
        sure = tf.reduce_min(tf.where(has, probabilities, 1 - probabilities), axis=1)
        outputs = {"labels": labels, "num_labels": num_labels, "probabilities": probabilities}
        return {**outputs, **self._confidence.abstention(sure)}

    @property
    def explained(self) -> tuple[str, ...]:
        """The labels: explanations are of a label's log-odds, by default the likeliest label's."""
        return self.labels

    def explained_index(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the index of the likeliest label."""
        return tf.argmax(self.run_model(inputs)["logits"], axis=-1, output_type=tf.int32)

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes a label's log-odds, its logit divided by the temperature."""
        return tf.gather(self._confidence.calibrated(outputs["logits"]), index, batch_dims=1)

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "labels": tf.TensorSpec([None, None], tf.string),
            "num_labels": tf.TensorSpec([None], tf.int32),
            "probabilities": tf.TensorSpec([None, len(self.labels)], tf.float32),
            **self._confidence.specs(),
        }

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, and `classify` for TF Serving's Classify API."""
        return {
            **super().other_signatures(batches),
            "classify": classify_signature(self.answer, self.text_names, self.labels, batches),
        }

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        options = {"labels": list(self.labels), "thresholds": list(self.thresholds)}
        return {**options, **super().config(), **self._confidence.config()}


def _checked_thresholds(
    thresholds: float | Sequence[float], labels: Sequence[str]
) -> tuple[float, ...]:
    """Returns one threshold per label; ValueError for a wrong number, or one outside 0 to 1."""
    numbers = np.atleast_1d(thresholds).tolist()
    if np.ndim(thresholds) == 0:
        numbers *= len(labels)
    if len(numbers) != len(labels):
        raise ValueError(
            f"thresholds has {len(numbers)} numbers for {len(labels)} labels: pass one number "
            "for all labels, or one for each"
        )
    for label, threshold in zip(labels, numbers, strict=True):
        if not 0 <= threshold <= 1:
            raise ValueError(
                f"thresholds: {threshold} for {label!r}, must be a probability, from 0 to 1"
            )
    return tuple(map(float, numbers))
