"""Export of taggers: text in, its words with a label each and where they stand out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as texts
from keras_transformers.pipelines.bounded_memory import in_chunks
from keras_transformers.saved_model.writing import Signature, write
from keras_transformers.tokenizers import offsets, packing, windows
from keras_transformers.tokenizers.words import begins_word

_EXAMPLES = ("Ada Lovelace (1815-1852) was born in London.", "Straße, “naïve”, 東京 🎬!")
_OUTSIDE = "O"  # of words without tokens, as in training


def tagger(
    model: keras.Model,
    tokenizer: Any,
    labels: Sequence[str],
    path: str | os.PathLike[str],
    *,
    max_sequence_length: int | None = None,
    offset_unit: Literal["character", "byte"] = "character",
    examples: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a tagger as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> tokens, labels string, starts, ends int32, scores
      float32, each (batch, words), num_tokens int32 (batch,). `words` is the largest of
      `num_tokens`; beyond a row's `num_tokens` strings are "" and numbers 0. `tokens` are the words
      as they stand in the text from `starts` to `ends` (exclusive), cut as
      `tokenizers.words.begins_word` tells; `scores` the probabilities of their labels, which are
      those of their first word pieces.
    - words(words string (batch, words)) -> labels string, scores float32 (batch, words): for words
      that are cut already, rows filled up with "". What has no tokens is labelled O, with score 0.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> probabilities
      float32 (batch, length, labels); ids beyond the vocabulary and lengths beyond the model's
      positions are refused.

    Nothing of a long text is lost: it takes several windows that overlap by half, as in
    `data.tagging`, and each word gets its label where it has more context.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, output logits
            (batch, length, labels), as `models.heads.tagger` makes it.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`.
        labels: name of each label, in the order of the logits.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_sequence_length: of a window, in tokens. Give what the model was trained with; its
            number of positions by default.
        offset_unit: of `starts` and `ends`: "character" counts Unicode code points, as Python
            does; "byte" bytes of the UTF-8 text. Bytes that are no UTF-8 count as characters too.
        examples: texts to check the export with; they are stored in it with their labels, so give
            none that are secret. Two plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, labels, length or examples do not fit each other, or another
            `offset_unit`.
        RuntimeError: the written export does not repeat the model's outputs. Of a bfloat16 model,
            whose graph rounds elsewhere, labels of nearly the same probability may change places.
    """
    model = texts.part(model, tokenizer, "logits")
    if len(model.output["logits"].shape) != 3:
        raise ValueError(
            f"model {model.name!r} returns one row of logits a text, not one a token: give what "
            "models.heads.tagger makes, or export it as a classifier"
        )
    labels = texts.checked_labels(labels, model)
    texts.check_offset_unit(offset_unit)
    length = texts.checked_length(model, max_sequence_length, pair=False)
    batches = texts.example_batches(_EXAMPLES if examples is None else examples, length, pair=False)
    graph = _Graph(model, tokenizer, labels, length, offset_unit)
    rows = {
        dtype: tf.TensorSpec([None, None], dtype) for dtype in (tf.string, tf.int32, tf.float32)
    }
    found = {
        "tokens": rows[tf.string],
        "labels": rows[tf.string],
        "starts": rows[tf.int32],
        "ends": rows[tf.int32],
        "scores": rows[tf.float32],
    }
    return write(
        path,
        {
            "serving_default": Signature(
                graph.from_text,
                {"text": tf.TensorSpec([None], tf.string)},
                found | {"num_tokens": tf.TensorSpec([None], tf.int32)},
                batches,
            ),
            "words": Signature(
                graph.from_words,
                {"words": rows[tf.string]},
                {name: found[name] for name in ("labels", "scores")},
                [_as_words(batch["text"]) for batch in batches],
            ),
            "tokens": Signature(
                graph.from_tokens,
                texts.token_specs(),
                {"probabilities": tf.TensorSpec([None, None, len(labels)], tf.float32)},
                [texts.tokenized(tokenizer, batch, length) for batch in batches],
            ),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={
            "task": "tagging",
            "labels": labels,
            "offset_unit": offset_unit,
            "lengths": {"num_tokens": list(found)},
        }
        | texts.metadata(model, tokenizer, length),
        tolerance=texts.tolerance(model),
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
    offset_unit: str

    def from_text(self, text: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            token_ids, starts, ends = self.tokenizer.tokenize_with_offsets(text)
            first = tf.where(begins_word(text, starts, ends))[:, 0]  # (words,), indices of tokens
        label_index, probability = self._labelled(token_ids)
        with tf.device("CPU:0"):
            num_tokens = tf.size(token_ids.values, tf.int64)
            last = tf.concat([first, [num_tokens]], axis=0)[1:] - 1
            row = tf.gather(token_ids.value_rowids(), first)  # (words,)
            begin, end = tf.gather(starts.values, first), tf.gather(ends.values, last)
            found = tf.RaggedTensor.from_value_rowids(begin, row, token_ids.nrows(), validate=False)
            columns = {
                "tokens": tf.strings.substr(tf.gather(text, row), begin, end - begin),
                "labels": tf.gather(tf.constant(self.labels), tf.gather(label_index, first)),
                "starts": self._in_unit(text, found, begin),
                "ends": self._in_unit(text, found, end),
                "scores": tf.gather(probability, first),
            }
            rows = {name: found.with_values(values).to_tensor() for name, values in columns.items()}
            return {**rows, "num_tokens": tf.cast(found.row_lengths(), tf.int32)}

    def from_words(self, words: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            shape = tf.shape(words, tf.int64)  # (batch, words)
            pieces = self.tokenizer.tokenize(tf.reshape(words, [-1]))  # (all words, None)
            by_word = tf.RaggedTensor.from_row_lengths(
                pieces, tf.fill(shape[:1], shape[1]), validate=False
            )  # (batch, words, None)
            token_ids = by_word.merge_dims(1, 2)
        label_index, probability = self._labelled(token_ids)
        with tf.device("CPU:0"):
            # The token behind the last one stands for those of words that have none.
            first = tf.reshape(pieces.row_starts(), shape)
            has_tokens = tf.reshape(pieces.row_lengths() > 0, shape)
            label = tf.gather(tf.constant(self.labels), tf.gather(_padded(label_index), first))
            label = tf.where(has_tokens, label, _OUTSIDE)
            score = tf.where(has_tokens, tf.gather(_padded(probability), first), 0.0)
            return {"labels": tf.where(words == "", "", label), "scores": score}

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        return {"probabilities": self._probabilities(texts.checked_tokens(self.model, tokens))}

    def _labelled(self, token_ids: Any) -> tuple[Any, Any]:
        """Texts (batch, None) to the best label of each token and its probability, (tokens,)."""
        with tf.device("CPU:0"):  # where ragged tensors are at home
            # [CLS] and [SEP] take two places.
            halves = windows.plan_halves(token_ids.row_lengths(), self.max_sequence_length - 2)
            inputs = packing.pack(
                [windows.cut(token_ids, halves.windows)],
                cls_token_id=self.tokenizer.cls_token_id,
                sep_token_id=self.tokenizer.sep_token_id,
                pad_token_id=self.tokenizer.pad_token_id,
            )
            owners = _owners(token_ids, halves)  # (tokens, 2)
        rows = tf.TensorSpec([None, None], tf.int32)
        best = in_chunks(
            self._best,
            texts.widened(inputs),
            {"label_index": rows, "probability": tf.TensorSpec([None, None], tf.float32)},
        )  # each (windows, length)
        with tf.device("CPU:0"):
            label_index, probability = (tf.gather_nd(value, owners) for value in best.values())
            return label_index, probability

    def _best(self, tokens: dict[str, Any]) -> dict[str, Any]:
        probabilities = self._probabilities(tokens)
        return {
            "label_index": tf.argmax(probabilities, axis=-1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=-1),
        }

    def _probabilities(self, tokens: dict[str, Any]) -> Any:
        logits = self.model(tokens, training=False)["logits"]  # (batch, length, labels)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def _in_unit(self, text: Any, ragged: Any, byte_offsets: Any) -> Any:
        if self.offset_unit == "byte":
            return byte_offsets
        return offsets.to_characters(text, ragged.with_values(byte_offsets)).values


def _owners(token_ids: Any, halves: windows.Halves) -> Any:
    """Where each token counts: int64 (tokens, 2), its window and its position in there."""
    (rows, _, _), step, lead = halves
    row = token_ids.value_rowids()  # (tokens,)
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(token_ids.row_starts(), row)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(rows), rows, token_ids.nrows()
    )  # (batch,), of windows
    index = tf.clip_by_value((position - lead) // step, 0, tf.gather(counts, row) - 1)
    window = tf.gather(tf.cumsum(counts, exclusive=True), row) + index
    return tf.stack([window, position - index * step + 1], axis=1)  # behind [CLS]


def _padded(values: Any) -> Any:
    return tf.pad(values, [[0, 1]])


def _as_words(column: np.ndarray) -> dict[str, np.ndarray]:
    """Texts cut at white space, and an odd word, as examples of a signature that takes words."""
    rows = [[*text.split()[:40], b"\xe2\x80\x8b"] for text in column]
    width = max(map(len, rows), default=0)
    cells = [row + [b""] * (width - len(row)) for row in rows]
    return {"words": np.array(cells, dtype=object).reshape(len(rows), width)}
