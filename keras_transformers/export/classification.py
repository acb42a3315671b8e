"""Export of sequence classifiers: one text or a pair in, its label and probabilities out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.export import text
from keras_transformers.export.saved_model import CLASSIFY, Signature, write


def classifier(
    model: keras.Model,
    tokenizer: Any,
    labels: Sequence[str],
    path: str | os.PathLike[str],
    *,
    max_sequence_length: int | None = None,
    pair: bool = False,
    examples: Sequence[str] | Sequence[tuple[str, str]] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a classifier as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), with `pair` also text_b) -> label string (batch,),
      probabilities float32 (batch, classes), label_index int32 (batch,).
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same; ids
      beyond the vocabulary and lengths beyond the model's positions are refused. No segment_ids
      where the model takes none.
    - classify(inputs string (batch,), serialized tf.Example with the features text, text_b) ->
      classes string, scores float32 (batch, classes), in the order of `labels`: for TF Serving's
      Classify API.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, or without segment_ids,
            output logits (batch, classes), as `models.heads.classifier` makes it.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`, or the
            `tokenizers.NgramTokenizer` of `models.fasttext`.
        labels: name of each class, in the order of the logits.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_sequence_length: of the packed tokens; longer texts are trimmed as the tokenizer does
            it. The model's number of positions by default; to be given where it has none.
        pair: the model takes two text.
        examples: texts, or pairs of texts, to check the export with; they are stored in it with
            their answers, so give none that are secret. Two plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, labels, length or examples do not fit each other.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    inputs = text.token_inputs(model)
    text.check_model(model, tokenizer, "logits", inputs=inputs)
    labels = text.checked_labels(labels, model)
    length = text.checked_length(model, max_sequence_length, pair=pair)
    batches = text.example_batches(examples, length, pair=pair)
    graph = _Graph(model, tokenizer, labels, length, tuple(batches[0]))
    strings = tf.TensorSpec([None], tf.string)
    answer = {
        "label": strings,
        "probabilities": tf.TensorSpec([None, len(labels)], tf.float32),
        "label_index": tf.TensorSpec([None], tf.int32),
    }
    ranked = {
        "classes": tf.TensorSpec([None, len(labels)], tf.string),
        "scores": tf.TensorSpec([None, len(labels)], tf.float32),
    }
    tokens = [text.tokenized(tokenizer, batch, length) for batch in batches]
    records = [text.serialized(batch) for batch in batches]
    text_specs = dict.fromkeys(graph.text_names, strings)
    return write(
        path,
        {
            "serving_default": Signature(graph.from_text, text_specs, answer, batches),
            "tokens": Signature(graph.from_tokens, text.token_specs(inputs), answer, tokens),
            "classify": Signature(
                graph.from_records, {"inputs": strings}, ranked, records, CLASSIFY
            ),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={"task": "classification", "labels": labels, "pair": pair}
        | text.metadata(model, tokenizer, length),
        tolerance=text.tolerance(model),
        scores=scores,
        check=check,
    )


@dataclass(frozen=True)
class _Graph:
    """The functions behind the signatures. Strings stay on the CPU, where alone they can be."""

    model: keras.Model
    tokenizer: Any
    labels: list[str]
    max_sequence_length: int
    text_names: tuple[str, ...]

    def from_text(self, **columns: Any) -> dict[str, Any]:
        return self._answer(text.tokenize(self.tokenizer, columns, self.max_sequence_length))

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        return self._answer(text.checked_tokens(self.model, tokens))

    def from_records(self, inputs: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            features = dict.fromkeys(self.text_names, tf.io.FixedLenFeature([], tf.string))
            columns = tf.io.parse_example(inputs, features)
            classes = tf.repeat(tf.constant([self.labels]), tf.size(inputs), axis=0)
        return {"classes": classes, "scores": self.from_text(**columns)["probabilities"]}

    def _answer(self, tokens: dict[str, Any]) -> dict[str, Any]:
        logits = self.model(tokens, training=False)["logits"]  # (batch, classes)
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        label_index = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        with tf.device("CPU:0"):
            label = tf.gather(tf.constant(self.labels), label_index)
        return {"label": label, "probabilities": probabilities, "label_index": label_index}
