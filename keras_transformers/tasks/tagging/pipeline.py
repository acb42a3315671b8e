"""Tags text: a text in, its words out, each with a label and its offsets in the text."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.layers.shared import shared_calls
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.confidence import Confidence
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.tagging.answer import entity_type
from keras_transformers.tasks.texts import named_columns, string_column
from keras_transformers.tasks.token_inputs import (
    TextPipeline,
    check_offset_unit,
    checked_labels,
    in_chunks,
    joined,
    zero_at_padding,
)
from keras_transformers.tasks.tracing import traced
from keras_transformers.tokenizers import offsets, windows
from keras_transformers.tokenizers import words as running_words
from keras_transformers.tokenizers.protocols import SpanTokenizer

__all__ = ["Tagger"]

_EXAMPLES = ("Ada Lovelace (1815-1852) was born in London.", "Straße, “naïve”, 東京 🎬!")
_OUTSIDE = "O"  # the label of words without tokens, as in training


class Tagger(TextPipeline):
    """Labels the words of texts.

    Long texts are not truncated: they are read in windows that overlap by half, as in
    `data.text.tagging`, and each word takes its label from the window with more context for it.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> tokens, labels string, starts, ends int32, scores
      float32, each (batch, words), num_tokens int32 (batch,). `words` is the largest of
      `num_tokens`; after a row's `num_tokens`, strings are "" and numbers 0. `tokens` are the words
      of the text, from `starts` to `ends` (exclusive), as `tokenizers.words.spans` splits it. A
      word takes the label of its first token, and `scores` has the label's probability.
    - entities(text string (batch,)) -> label, text string, start, end int32, score float32, each
      (batch, entities), num_entities int32 (batch,): the words joined as `Tags.entities` joins
      them, with the same padding. `text` is the text from `start` to `end`.
    - words(words string (batch, words)) -> labels string, scores float32 (batch, words): for texts
      already split into words, rows padded with "". A word without tokens gets label O, score 0.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> probabilities
      float32 (batch, length, labels). It takes only the inputs that the model has, and rejects ids
      beyond the vocabulary and lengths beyond the model's positions.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to logits (batch,
            length, labels); see `heads.tagger`.
        tokenizer: turns texts into the model's inputs and gives offsets, such as a
            `tokenizers.WordPieceTokenizer`.
        labels: the name of each label, in the order of the logits.
        max_sequence_length: tokens in a window. Use the length that the model was trained with;
            defaults to its number of positions.
        offset_unit: the unit of `starts` and `ends`: "character" counts Unicode code points, as
            Python does, and each byte that is not UTF-8; "byte" counts bytes of the text.
        temperature: divides the logits; above 1, probabilities are less sure. `fit` finds it with
            `calibrate=True`.
        abstain_below: adds the output `abstained` bool to `serving_default` and `words`: whether a
            word's score is below this; and to `entities`, whether that of one of its words is.

    Raises:
        ValueError: model, tokenizer, labels and length do not match, or an option is out of range.

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
    tokenizer: SpanTokenizer

    def __init__(
        self,
        model: keras.Model,
        tokenizer: SpanTokenizer,
        labels: Sequence[str],
        *,
        max_sequence_length: int | None = None,
        offset_unit: Literal["character", "byte"] = "character",
        temperature: float = 1.0,
        abstain_below: float | None = None,
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=("logits",), max_sequence_length=max_sequence_length
        )
        if len(self.model.output["logits"].shape) != 3:
            raise ValueError(
                f"model {model.name!r} returns one row of logits per text, not one per token: pass "
                "a model from tagger, or use TextClassifier"
            )
        self.labels = checked_labels(labels, self.model)
        check_offset_unit(offset_unit)
        self.offset_unit: str = offset_unit
        self.temperature, self.abstain_below = temperature, abstain_below
        self._confidence = Confidence(temperature, abstain_below)

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds words, their offsets, labels and scores, in the graph."""
        text = texts["text"]
        with tf.device("CPU:0"):  # string ops run only on the CPU
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
            for name, abstained in self._confidence.abstention(scores).items():
                columns[name] = starts.with_values(abstained)
            rows = {name: column.to_tensor() for name, column in columns.items()}
            return {**rows, "num_tokens": tf.cast(starts.row_lengths(), tf.int32)}

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each row's windows; see `TextPipeline`."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            token_ids = self.tokenizer.tokenize(texts["text"])
            cut = self._halves(token_ids).windows
            parts = self.real_tokens(self.pack([windows.cut(token_ids, cut)]))
            return joined(parts, cut.rows, tf.size(texts["text"]))

    def answer_entities(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the entities of texts, strings (batch,), in the graph."""
        with tf.device("CPU:0"):
            token_ids, *tokens = self.tokenizer.tokenize_with_offsets(text)
            starts, ends = running_words.spans(text)
            first, has_tokens = running_words.first_tokens(starts, ends, *tokens)
        labels, scores = self._labelled(token_ids, first, has_tokens)
        with tf.device("CPU:0"):
            kinds = [entity_type(label) for label in self.labels]
            types = [kind for kind in dict.fromkeys(kinds) if kind is not None]
            codes = tf.constant([-1 if kind is None else types.index(kind) for kind in kinds])
            begins = tf.constant([label.startswith("B-") for label in self.labels])
            matches = labels[:, None] == tf.constant(self.labels)  # (words, labels)
            index = tf.argmax(tf.cast(matches, tf.int32), axis=1)
            code = tf.where(labels == _OUTSIDE, -1, tf.gather(codes, index))  # (words,)
            row = tf.cast(starts.value_rowids(), tf.int32)
            goes_on = (code[1:] == code[:-1]) & (row[1:] == row[:-1])
            goes_on = tf.pad(goes_on, [[1, 0]])[: tf.size(code)] & ~tf.gather(begins, index)
            is_first = (code >= 0) & ~goes_on
            words = tf.where(code >= 0)[:, 0]  # the words in entities
            number = tf.gather(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, words)
            firsts = tf.where(is_first)[:, 0]  # (entities,)
            count = tf.size(firsts)
            of_word = [tf.gather(values, words) for values in (ends.values, scores)]
            end = tf.math.unsorted_segment_max(of_word[0], number, count)
            score = tf.math.unsorted_segment_mean(of_word[1], number, count)
            rows = tf.RaggedTensor.from_value_rowids(
                tf.gather(starts.values, firsts), tf.gather(row, firsts), tf.size(text)
            )
            stops = rows.with_values(end)
            columns = {
                "label": rows.with_values(
                    tf.gather(tf.constant(types or [""]), tf.gather(code, firsts))
                ),
                "text": running_words.cut(text, rows, stops),
                "start": self._in_unit(text, rows),
                "end": self._in_unit(text, stops),
                "score": rows.with_values(score),
            }
            for name, abstained in self._confidence.abstention(scores).items():
                one = tf.cast(tf.gather(abstained, words), tf.int32)
                several = tf.math.unsorted_segment_max(one, number, count)
                columns[name] = rows.with_values(several > 0)
            dense = {name: column.to_tensor() for name, column in columns.items()}
            return {**dense, "num_entities": tf.cast(rows.row_lengths(), tf.int32)}

    def answer_words(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds labels and scores of words, strings (batch, words), in the graph."""
        with tf.device("CPU:0"):
            is_word = words != ""  # (batch, words)
            text, *spans = running_words.join(tf.ragged.boolean_mask(words, is_word))
            token_ids, *tokens = self.tokenizer.tokenize_with_offsets(text)
            first, has_tokens = running_words.first_tokens(*spans, *tokens)
        labels, scores = self._labelled(token_ids, first, has_tokens)
        with tf.device("CPU:0"):
            number = tf.cumsum(tf.cast(tf.reshape(is_word, [-1]), tf.int32)) - 1
            place = tf.where(is_word, tf.reshape(number, tf.shape(words)), tf.size(labels))
            of_padding = {"labels": "", "scores": 0.0, "abstained": False}
            of_words = {
                "labels": labels,
                "scores": scores,
                **self._confidence.abstention(scores),
            }
            return {
                name: tf.gather(tf.concat([values, [of_padding[name]]], axis=0), place)
                for name, values in of_words.items()
            }

    def rows(
        self,
        texts: Mapping[str, Iterable[str | bytes]] | Any,
        *,
        batch_size: int = 32,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Answers like a call, but returns dicts; see `Pipeline.rows`.

        Args:
            texts: a column `text`; or `words`, lists of strings, for labels and scores of each.
            batch_size: rows per batch.
            **options: see a call.
        """
        named = named_columns(texts)
        if set(named) != {"words"}:
            return super().rows(named, batch_size=batch_size, **options)
        if options:
            return self.with_options(**options).rows(named, batch_size=batch_size)
        answered: list[dict[str, Any]] = []
        lists = list(named["words"])
        for start in range(0, len(lists), batch_size):
            batch = lists[start : start + batch_size]
            outputs = self._word_graph(words=tf.constant(string_column("words", batch, rank=2)))
            columns = {name: value.numpy() for name, value in outputs.items()}
            answered += [
                {name: cells[: len(words)] for name, cells in row.items()}
                for row, words in zip(reading.rows(columns, []), batch, strict=True)
            ]
        return answered

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the probabilities of each token's labels, 0 at padding, from the inputs."""
        logits = self.run_model(tokens)["logits"]  # (batch, length, labels)
        probabilities = tf.nn.softmax(self._confidence.calibrated(logits))
        return {"probabilities": zero_at_padding(probabilities, tokens)}

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        dtypes = {
            "tokens": tf.string,
            "labels": tf.string,
            "starts": tf.int32,
            "ends": tf.int32,
            "scores": tf.float32,
        }
        rows = {name: tf.TensorSpec([None, None], dtype) for name, dtype in dtypes.items()}
        abstention = self._confidence.specs(rank=2)
        return {**rows, **abstention, "num_tokens": tf.TensorSpec([None], tf.int32)}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `entities`; `words`, for texts already split into words; and `tokens`."""
        strings, integers = (tf.TensorSpec([None, None], x) for x in (tf.string, tf.int32))
        of_entities = {
            "label": strings,
            "text": strings,
            "start": integers,
            "end": integers,
            "score": tf.TensorSpec([None, None], tf.float32),
            "num_entities": tf.TensorSpec([None], tf.int32),
            **self._confidence.specs(rank=2),
        }
        specs = self.answer_specs()
        probabilities = tf.TensorSpec([None, None, len(self.labels)], tf.float32)
        return {
            "entities": Signature(self.answer_entities, self.input_specs(), of_entities, batches),
            "words": Signature(
                self.answer_words,
                {"words": specs["tokens"]},
                {name: specs[name] for name in specs if name in ("labels", "scores", "abstained")},
                [_as_words(batch["text"]) for batch in batches],
            ),
            "tokens": self.tokens_signature(
                self.answer_tokens, {"probabilities": probabilities}, batches
            ),
        }

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts (one has several windows) and an empty batch."""
        return super().example_batches(_EXAMPLES if examples is None else examples)

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {
            "labels": list(self.labels),
            "offset_unit": self.offset_unit,
            "max_sequence_length": self.max_sequence_length,
            **self._confidence.config(),
        }

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        counted = [name for name in self.answer_specs() if name != "num_tokens"]
        return {**self.config(), "lengths": {"num_tokens": counted}}

    @functools.cached_property
    def _word_graph(self) -> Callable[..., dict[str, tf.Tensor]]:
        words = tf.TensorSpec([None, None], tf.string, name="words")
        with shared_calls():
            return traced(self.answer_words, words=words)

    def _halves(self, token_ids: tf.RaggedTensor) -> windows.Halves:
        """Plans the windows of rows of tokens (batch, None)."""
        num_special = sum(map(len, self.tokenizer.special_tokens(1)))
        return windows.plan_halves(token_ids.row_lengths(), self.max_sequence_length - num_special)

    def _labelled(
        self, token_ids: tf.Tensor, first: tf.Tensor, has_tokens: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the labels of words and their probabilities, (words,).

        Args:
            token_ids: int32 (batch, None).
            first: int64 (words,), the index of each word's first token among all tokens.
            has_tokens: bool (words,), whether there is a first token.
        """
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            halves = self._halves(token_ids)
            num_before = len(self.tokenizer.special_tokens(1)[0])
            places = _places(token_ids, halves, num_before)  # (tokens, 2)
        rows = tf.TensorSpec([None, None], tf.int32)
        best = in_chunks(
            self._best,
            self.pack([windows.cut(token_ids, halves.windows)]),
            {"label_index": rows, "probability": tf.TensorSpec([None, None], tf.float32)},
        )  # each (windows, length)
        with tf.device("CPU:0"):
            # Padded by one row, for a word after the last token.
            label_index, probability = (
                tf.gather(tf.pad(tf.gather_nd(value, places), [[0, 1]]), first)
                for value in best.values()
            )
            label = tf.gather(tf.constant(self.labels), label_index)
            return tf.where(has_tokens, label, _OUTSIDE), tf.where(has_tokens, probability, 0.0)

    def _best(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        probabilities = self.decode(tokens)["probabilities"]
        return {
            "label_index": tf.argmax(probabilities, axis=-1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=-1),
        }

    def _in_unit(self, text: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
        if self.offset_unit == "byte":
            return byte_offsets
        return offsets.to_characters(text, byte_offsets)


def _places(token_ids: tf.RaggedTensor, halves: windows.Halves, num_before: int) -> tf.Tensor:
    """Returns where to read each token's label: int64 (tokens, 2), window and position in it.

    Args:
        token_ids: (batch, None).
        halves: the windows over them.
        num_before: special tokens at the start of each window.
    """
    (rows, _, _), step, lead = halves
    row = token_ids.value_rowids()  # (tokens,)
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(token_ids.row_starts(), row)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(rows), rows, token_ids.nrows()
    )  # (batch,), windows per row
    index = tf.clip_by_value((position - lead) // step, 0, tf.gather(counts, row) - 1)
    window = tf.gather(tf.cumsum(counts, exclusive=True), row) + index
    return tf.stack([window, position - index * step + num_before], axis=1)


def _as_words(column: np.ndarray) -> dict[str, np.ndarray]:
    """Splits texts into words and adds an odd text, as examples for the signature `words`."""
    rows = [[*text.split()[:40], b"\xe2\x80\x8b"] for text in column]
    width = max(map(len, rows), default=0)
    cells = [row + [b""] * (width - len(row)) for row in rows]
    return {"words": np.array(cells, dtype=object).reshape(len(rows), width)}
