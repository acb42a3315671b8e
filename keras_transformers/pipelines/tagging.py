"""Taggers: a text in, its words out, each with a label and its place in the text."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines.base import Signature
from keras_transformers.pipelines.token_inputs import (
    TextPipeline,
    check_offset_unit,
    checked_labels,
    in_chunks,
    text_batches,
)
from keras_transformers.tokenizers import offsets, windows
from keras_transformers.tokenizers import words as running_words

__all__ = ["Tagger"]

_EXAMPLES = ("Ada Lovelace (1815-1852) was born in London.", "Straße, “naïve”, 東京 🎬!")
_OUTSIDE = "O"  # of words without tokens, as in training


class Tagger(TextPipeline):
    """Labels the words of texts.

    Nothing of a long text is lost: it takes several windows that overlap by half, as in
    `data.text.tagging`, and each word gets its label where it has more context.

    Signatures of its export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> tokens, labels string, starts, ends int32, scores
      float32, each (batch, words), num_tokens int32 (batch,). `words` is the largest of
      `num_tokens`; beyond a row's `num_tokens` strings are "" and numbers 0. `tokens` are the words
      that the text has from `starts` to `ends` (exclusive), cut by `tokenizers.words.spans`;
      `scores` are the probabilities of their labels, which are those of their first tokens.
    - words(words string (batch, words)) -> labels string, scores float32 (batch, words): for words
      that are cut already, rows filled up with "". A word without tokens is labelled O, score 0.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> probabilities
      float32 (batch, length, labels); ids beyond the vocabulary and lengths beyond the model's
      positions are refused. Only those inputs that the model takes.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, or without segment_ids,
            output logits (batch, length, labels), as `heads.tagger` makes it.
        tokenizer: turns texts into the model's inputs and gives offsets, such as a
            `tokenizers.WordPieceTokenizer`.
        labels: name of each label, in the order of the logits.
        max_sequence_length: of a window, in tokens. Give what the model was trained with; its
            number of positions by default.
        offset_unit: of `starts` and `ends`: "character" counts Unicode code points, as Python
            does; "byte" counts bytes of the UTF-8 text. Bytes that are not UTF-8 count as
            characters too.

    Raises:
        ValueError: model, tokenizer, labels and length do not fit each other, or another
            `offset_unit`.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> tag = Tagger(kt.heads.tagger(encoder, 3), tokenizer, ["O", "B-FILM", "I-FILM"])
        >>> tag("Good films!").tokens
        ['Good', 'films', '!']
    """

    task = "tagging"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Any,
        labels: Sequence[str],
        *,
        max_sequence_length: int | None = None,
        offset_unit: Literal["character", "byte"] = "character",
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=("logits",), max_sequence_length=max_sequence_length
        )
        if len(self.model.output["logits"].shape) != 3:
            raise ValueError(
                f"model {model.name!r} returns one row of logits per text, not one per token: give "
                "what heads.tagger makes, or make it a TextClassifier"
            )
        self.labels = checked_labels(labels, self.model)
        check_offset_unit(offset_unit)
        self.offset_unit: str = offset_unit

    def answer(self, **texts: Any) -> dict[str, Any]:
        """Strings to words, their places, labels and scores, in the graph."""
        text = texts["text"]
        with tf.device("CPU:0"):  # strings live nowhere else
            token_ids, *tokens = self.tokenizer.tokenize_with_offsets(text)
            starts, ends = running_words.spans(text)
            first, has_tokens = running_words.first_tokens(starts, ends, *tokens)
        labels, scores = self._labelled(token_ids, first, has_tokens)
        with tf.device("CPU:0"):
            columns = {
                "tokens": running_words.cut(text, starts, ends),
                "labels": starts.with_values(labels),
                "starts": self._in_unit(text, starts),
                "ends": self._in_unit(text, ends),
                "scores": starts.with_values(scores),
            }
            rows = {name: column.to_tensor() for name, column in columns.items()}
            return {**rows, "num_tokens": tf.cast(starts.row_lengths(), tf.int32)}

    def answer_words(self, words: Any) -> dict[str, Any]:
        """Words, cut already, strings (batch, words), to labels and scores, in the graph."""
        with tf.device("CPU:0"):
            is_word = words != ""  # (batch, words)
            text, *spans = running_words.join(tf.ragged.boolean_mask(words, is_word))
            token_ids, *tokens = self.tokenizer.tokenize_with_offsets(text)
            first, has_tokens = running_words.first_tokens(*spans, *tokens)
        labels, scores = self._labelled(token_ids, first, has_tokens)
        with tf.device("CPU:0"):
            number = tf.cumsum(tf.cast(tf.reshape(is_word, [-1]), tf.int32)) - 1
            place = tf.where(is_word, tf.reshape(number, tf.shape(words)), tf.size(labels))
            return {
                "labels": tf.gather(tf.concat([labels, [""]], axis=0), place),
                "scores": tf.gather(tf.concat([scores, [0.0]], axis=0), place),
            }

    def decode(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """The model's inputs to the probabilities of each token's labels."""
        logits = self.model(tokens, training=False)["logits"]  # (batch, length, labels)
        return {"probabilities": tf.nn.softmax(tf.cast(logits, tf.float32))}

    def answer_specs(self) -> dict[str, Any]:
        """The outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        dtypes = {
            "tokens": tf.string,
            "labels": tf.string,
            "starts": tf.int32,
            "ends": tf.int32,
            "scores": tf.float32,
        }
        rows = {name: tf.TensorSpec([None, None], dtype) for name, dtype in dtypes.items()}
        return {**rows, "num_tokens": tf.TensorSpec([None], tf.int32)}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """`words`, for words that are cut already, and `tokens`."""
        specs = self.answer_specs()
        probabilities = tf.TensorSpec([None, None, len(self.labels)], tf.float32)
        return {
            "words": Signature(
                self.answer_words,
                {"words": specs["tokens"]},
                {name: specs[name] for name in ("labels", "scores")},
                [_as_words(batch["text"]) for batch in batches],
            ),
            "tokens": self.tokens_signature(
                self.answer_tokens, {"probabilities": probabilities}, batches
            ),
        }

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """The examples, awkward texts (one of several windows) and an empty batch."""
        return text_batches(
            examples, self.text_names, long=self.max_sequence_length, plain=_EXAMPLES
        )

    def config(self) -> dict[str, Any]:
        """The keyword arguments that make this pipeline again, as JSON values."""
        return {
            "labels": self.labels,
            "offset_unit": self.offset_unit,
            "max_sequence_length": self.max_sequence_length,
        }

    def metadata(self) -> dict[str, Any]:
        """What an export tells of this pipeline beside its model and vocabulary."""
        counted = [name for name in self.answer_specs() if name != "num_tokens"]
        return {**self.config(), "lengths": {"num_tokens": counted}}

    def _labelled(self, token_ids: Any, first: Any, has_tokens: Any) -> tuple[Any, Any]:
        """Labels and their probabilities, (words,), of words by their first tokens.

        Args:
            token_ids: int32 (batch, None).
            first: int64 (words,), indices into all these tokens.
            has_tokens: bool (words,), whether there is a first token.
        """
        num_before, num_after = map(len, self.tokenizer.special_tokens(1))
        with tf.device("CPU:0"):  # ragged tensors are at home there
            room = self.max_sequence_length - num_before - num_after
            halves = windows.plan_halves(token_ids.row_lengths(), room)
            places = _places(token_ids, halves, num_before)  # (tokens, 2)
        rows = tf.TensorSpec([None, None], tf.int32)
        best = in_chunks(
            self._best,
            self.pack([windows.cut(token_ids, halves.windows)]),
            {"label_index": rows, "probability": tf.TensorSpec([None, None], tf.float32)},
        )  # each (windows, length)
        with tf.device("CPU:0"):
            # One more, for a word after the last token.
            label_index, probability = (
                tf.gather(tf.pad(tf.gather_nd(value, places), [[0, 1]]), first)
                for value in best.values()
            )
            label = tf.gather(tf.constant(self.labels), label_index)
            return tf.where(has_tokens, label, _OUTSIDE), tf.where(has_tokens, probability, 0.0)

    def _best(self, tokens: dict[str, Any]) -> dict[str, Any]:
        probabilities = self.decode(tokens)["probabilities"]
        return {
            "label_index": tf.argmax(probabilities, axis=-1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=-1),
        }

    def _in_unit(self, text: Any, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
        if self.offset_unit == "byte":
            return byte_offsets
        return offsets.to_characters(text, byte_offsets)


def _places(token_ids: tf.RaggedTensor, halves: windows.Halves, num_before: int) -> Any:
    """Where each token counts: int64 (tokens, 2), its window and its position in there.

    Args:
        token_ids: (batch, None).
        halves: the windows over them.
        num_before: special tokens that each window starts with.
    """
    (rows, _, _), step, lead = halves
    row = token_ids.value_rowids()  # (tokens,)
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(token_ids.row_starts(), row)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(rows), rows, token_ids.nrows()
    )  # (batch,), of windows
    index = tf.clip_by_value((position - lead) // step, 0, tf.gather(counts, row) - 1)
    window = tf.gather(tf.cumsum(counts, exclusive=True), row) + index
    return tf.stack([window, position - index * step + num_before], axis=1)


def _as_words(column: np.ndarray) -> dict[str, np.ndarray]:
    """Texts cut at white space, and an odd word, as examples of a signature that takes words."""
    rows = [[*text.split()[:40], b"\xe2\x80\x8b"] for text in column]
    width = max(map(len, rows), default=0)
    cells = [row + [b""] * (width - len(row)) for row in rows]
    return {"words": np.array(cells, dtype=object).reshape(len(rows), width)}
