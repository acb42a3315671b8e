"""Classifies without training: a text and labels in, the label that describes the text out."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.text_lists import ListPipeline, likeliest, picked
from keras_transformers.tasks.token_inputs import (
    checked_labels,
    in_chunks,
    joined,
    names_read,
    one_row,
)
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["ZeroShotClassifier"]

_PLACE = "{}"
_TEMPLATE = "This example is {}."
_SCORES = ("entailed", "entailed_alone")


class ZeroShotClassifier(ListPipeline):
    """Chooses among labels that each request brings, with a model of natural language inference.

    Each label becomes a sentence, "This example is sports."; the model says whether the text
    entails it (Yin et al. 2019, arXiv:1909.00161). It answers as transformers' pipeline
    "zero-shot-classification". Rows may have any number of labels. "" is not a label: it pads rows
    with fewer labels than others, and its probability is 0.

    The labels of a text share a probability of 1: the softmax of how strongly it entails each.
    With `multi_label`, or for a single label, each has its own: how much more likely the text
    entails it than contradicts it.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), labels string (batch, labels)) -> label string,
      label_index, num_labels int32 (batch,), probabilities float32 (batch, labels). A row without
      labels has label "" and label_index -1. `num_labels` counts up to the last label that is not
      "". Labels that a row repeats are refused.
    - template(text, labels, hypothesis_template string (batch,), multi_label bool (batch,)) -> the
      same, with what the pipeline's options say by default. A template without {} is refused.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to logits (batch,
            classes), for a text and a sentence; see `heads.classifier`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        labels: the names of the model's classes, one of which starts with "entail". As in
            transformers, contradiction is the first class, or the last if entailment is the first.
        hypothesis_template: the sentence for a label, which stands for {}.
        multi_label: whether several labels may be true.
        max_sequence_length: maximum tokens in a packed pair of text and sentence; the tokenizer
            truncates longer ones. Defaults to the model's number of positions; required if it has
            none.

    Raises:
        ValueError: model, tokenizer, labels and length do not match, no label starts with "entail",
            or the template has no {}.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> nli = ["contradiction", "neutral", "entailment"]
        >>> classify = ZeroShotClassifier(kt.heads.classifier(encoder, 3), tokenizer, nli)
        >>> answer = classify("Good film!", ["films", "!"])
        >>> answer.label == ["films", "!"][answer.label_index]
        True
    """

    task = "zero_shot_classification"
    _LIST = "labels"
    _EXAMPLES = (
        (
            "The striker scored twice in the second half.",
            ["sports", "local politics", "food and drink"],
        ),
        ("It is late.", ["the time", "weather"]),
    )

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        labels: Sequence[str],
        *,
        hypothesis_template: str = _TEMPLATE,
        multi_label: bool = False,
        max_sequence_length: int | None = None,
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=("logits",), max_sequence_length=max_sequence_length
        )
        self.labels = checked_labels(labels, self.model)
        entailed = [at for at, name in enumerate(self.labels) if name.lower().startswith("entail")]
        if len(entailed) != 1:
            raise ValueError(
                f"labels={list(labels)}: expected the classes of a model of natural language "
                "inference, one of them starting with 'entail'; the labels to choose from are the "
                "second argument of a call"
            )
        if hypothesis_template.count(_PLACE) != 1:
            raise ValueError(
                f"hypothesis_template={hypothesis_template!r}: expected one {_PLACE} for the label"
            )
        self.hypothesis_template, self.multi_label = hypothesis_template, bool(multi_label)
        (self._entailed,) = entailed
        self._contradicted = len(self.labels) - 1 if self._entailed == 0 else 0

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes outputs from strings, in the graph."""
        text, labels = (texts[name] for name in self.text_names)
        shape = tf.shape(text)
        template = tf.fill(shape, self.hypothesis_template)
        return self._answer(text, labels, template, tf.fill(shape, self.multi_label))

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "label": tf.TensorSpec([None], tf.string),
            "probabilities": tf.TensorSpec([None, None], tf.float32),
            "label_index": tf.TensorSpec([None], tf.int32),
            "num_labels": tf.TensorSpec([None], tf.int32),
        }

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `template`, whose rows bring the template and whether several may be true."""
        inputs = {
            **self.input_specs(),
            "hypothesis_template": tf.TensorSpec([None], tf.string),
            "multi_label": tf.TensorSpec([None], tf.bool),
        }
        examples = []
        for batch in batches:
            size = len(batch["text"])
            template = np.array([b"It is about {}."] * size, object)
            examples.append(
                {
                    **batch,
                    "hypothesis_template": template,
                    "multi_label": np.arange(size) % 2 == 0,
                }
            )
        return {"template": Signature(self._answer, inputs, self.answer_specs(), examples)}

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each row's pairs; see `TextPipeline`."""
        text, labels = (texts[name] for name in self.text_names)
        sentences = _sentences(labels, tf.fill(tf.shape(text), self.hypothesis_template))
        tokens, places = self.packed_pairs(text, sentences)
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            return joined(self.real_tokens(tokens), places[:, 0], tf.size(text))

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes, for packed pairs, how strongly the text entails the sentence.

        Returns:
            entailed: the logit; entailed_alone: the probability that it does rather than contradict
            it; float32 (pairs,).
        """
        logits = tf.cast(self.run_model(tokens)["logits"], tf.float32)  # (pairs, classes)
        entailed, contradicted = (logits[:, at] for at in (self._entailed, self._contradicted))
        return {"entailed": entailed, "entailed_alone": tf.sigmoid(entailed - contradicted)}

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on a text and its first label; see `Pipeline.read`.

        Raises:
            ValueError: there are no labels.
        """
        text, labels = texts
        template = one_row("template", self.hypothesis_template)
        sentence = _sentences(self._first(labels)[None], template)[0]
        encoded = self.encode(one_row("text", text), sentence)
        self.run_model(encoded)
        return names_read(self.model, self.tokenizer, encoded)

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {
            "labels": list(self.labels),
            "hypothesis_template": self.hypothesis_template,
            "multi_label": self.multi_label,
            **super().config(),
        }

    def _answer(
        self,
        text: tf.Tensor,
        labels: tf.Tensor,
        hypothesis_template: tf.Tensor,
        multi_label: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Computes outputs for rows with their own templates, in the graph."""
        _check_request(labels, hypothesis_template)
        tokens, places = self.packed_pairs(text, _sentences(labels, hypothesis_template))
        specs = dict.fromkeys(_SCORES, tf.TensorSpec([None], tf.float32))
        scores = in_chunks(self.decode, tokens, specs)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            is_label = tf.not_equal(labels, "")
        shape = tf.shape(labels, tf.int64)
        entailed, alone = (tf.scatter_nd(places, scores[name], shape) for name in _SCORES)
        shared = tf.where(is_label, tf.nn.softmax(tf.where(is_label, entailed, -np.inf)), 0.0)
        counts = tf.reduce_sum(tf.cast(is_label, tf.int32), axis=1)
        separate = (multi_label | (counts == 1))[:, None]
        probabilities = tf.where(separate, alone, shared)
        index, count, _ = likeliest(probabilities, is_label)
        return {
            "label": picked(labels, index),
            "probabilities": probabilities,
            "label_index": index,
            "num_labels": count,
        }


def _sentences(labels: tf.Tensor, template: tf.Tensor) -> tf.Tensor:
    """Returns the sentence of each label (batch, labels); "" for ""."""
    with tf.device("CPU:0"):  # string ops run only on the CPU
        parts = tf.strings.split(template, _PLACE).to_tensor("", shape=[None, 2])
        shape = tf.shape(labels)
        start, end = (tf.broadcast_to(part, shape) for part in (parts[:, :1], parts[:, 1:]))
        return tf.where(tf.equal(labels, ""), "", tf.strings.join([start, labels, end]))


def _check_request(labels: tf.Tensor, template: tf.Tensor) -> None:
    """Refuses templates without a place, and labels that a row repeats."""
    with tf.device("CPU:0"):
        pieces = tf.strings.split(template, _PLACE).row_lengths()
        tf.debugging.Assert(
            tf.reduce_all(pieces == 2), ["each hypothesis_template needs one {}", template]
        )
        same = tf.equal(labels[:, :, None], labels[:, None, :])  # (batch, labels, labels)
        times = tf.reduce_sum(tf.cast(same, tf.int32), axis=2)
        repeated = labels[(times > 1) & tf.not_equal(labels, "")]
        tf.debugging.Assert(
            tf.equal(tf.size(repeated), 0), ["a row repeats a label: send each once", repeated]
        )
