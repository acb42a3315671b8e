"""Answers questions: a question and a context in, the answer and its offsets out."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.ranges import Default
from keras_transformers.tasks.explaining import Explained, ExplainedPipeline, Spans
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.token_inputs import (
    check_offset_unit,
    in_chunks,
    joined,
    widened,
    zero_at_padding,
)
from keras_transformers.tokenizers import offsets, windows
from keras_transformers.tokenizers.protocols import SpanTokenizer

__all__ = ["QuestionAnswerer"]

_EXAMPLES = (
    ("Where was Ada Lovelace born?", "Ada Lovelace (1815-1852) was born in London."),
    ("What is it?", "Straße, “naïve”, 東京 🎬!"),
)
_LOGITS = ("start_logits", "end_logits")
_KEY_BASE = 2**31  # above every offset, which is an int32


class _Read(NamedTuple):
    """What the model has read: windows of contexts.

    Attributes:
        tokens: the model's inputs, (windows, length).
        numbers: see `windows.question_windows`, (windows, length).
        rows: the row of each window, (windows,).
        spans: what `_best_spans` returns, each (windows,).
    """

    tokens: dict[str, tf.Tensor]
    numbers: tf.Tensor
    rows: tf.Tensor
    spans: dict[str, tf.Tensor]


class _Best(NamedTuple):
    """The best span of each row, (batch,).

    Attributes:
        is_answered: whether there is an answer.
        start: the span's start in bytes of the context; -1 for no span.
        end: its end, exclusive.
        score: its score.
        null_score: the lowest score of the first special token.
        window: the number of the window with the span.
        null_window: the number of the window with that score.
    """

    is_answered: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor
    null_score: tf.Tensor
    window: tf.Tensor
    null_window: tf.Tensor


class QuestionAnswerer(ExplainedPipeline):
    """Finds answers in contexts.

    Contexts may have any length: they are read in windows (`tokenizers.windows.question_windows`).
    The answer is the span of at most `max_answer_length` tokens, in any window, with the highest
    `score`: the start logit of its first token plus the end logit of its last. In a tie, the first
    span wins, then the shortest. `null_score` is the lowest score of the first special token
    ([CLS]) over all windows. `data.text.answer_spans.answers_from_logits` does the same.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(question, context string (batch,)) -> answer string, score float32, start,
      end int32, null_score float32, each (batch,). The answer is the context from `start` to `end`
      (exclusive). If there is none, because of `no_answer_threshold` or because the context has no
      tokens, the answer is "", `start` and `end` are -1, and `score` is `null_score`.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> start_logits,
      end_logits float32 (batch, length). It takes only the inputs that the model has, and rejects
      ids beyond the vocabulary and lengths beyond the model's positions.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to start_logits and
            end_logits (batch, length); see `heads.span_extractor`.
        tokenizer: turns texts into the model's inputs and gives offsets, such as a
            `tokenizers.WordPieceTokenizer`.
        max_sequence_length: tokens in a window, including the question and special tokens. The
            default is lowered to the model's positions.
        doc_stride: tokens of the context between the starts of two windows.
        max_question_length: in tokens; longer questions are truncated. The default is lowered to
            half of a window's tokens that are not special.
        max_answer_length: in tokens.
        no_answer_threshold: there is no answer if `null_score` exceeds the best span's score by
            more than this (SQuAD 2.0). None always answers with the best span (SQuAD 1.1).
        offset_unit: the unit of `start` and `end`: "character" counts Unicode code points, as
            Python and SQuAD do; "byte" counts bytes of the UTF-8 text.

    Raises:
        ValueError: model, tokenizer and lengths do not match, or an option is out of range.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> ask = QuestionAnswerer(kt.heads.span_extractor(encoder), tokenizer)
        >>> context = "Good films!"
        >>> answer = ask("Films?", context)
        >>> answer.text == context[answer.start : answer.end]
        True
    """

    task = "question_answering"
    tokenizer: SpanTokenizer

    def __init__(
        self,
        model: keras.Model,
        tokenizer: SpanTokenizer,
        *,
        max_sequence_length: int = Default(384),
        doc_stride: int = 128,
        max_question_length: int = Default(64),
        max_answer_length: int = 30,
        no_answer_threshold: float | None = None,
        offset_unit: Literal["character", "byte"] = "character",
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=_LOGITS, max_sequence_length=max_sequence_length, pair=True
        )
        self.text_names = ("question", "context")
        if isinstance(max_question_length, Default):
            room = self.max_sequence_length - tokenizer.num_special_tokens(2)
            max_question_length = max_question_length.at_most(max(1, room // 2))
        self.doc_stride, self.max_question_length = int(doc_stride), int(max_question_length)
        windows.check_question_windows(tokenizer, **self.window_lengths)
        if max_answer_length < 1:
            raise ValueError(f"max_answer_length={max_answer_length}: expected 1 token or more")
        if no_answer_threshold is not None and not math.isfinite(no_answer_threshold):
            raise ValueError(
                f"no_answer_threshold={no_answer_threshold}: expected a finite number, or None to "
                "answer every question"
            )
        check_offset_unit(offset_unit)
        self.max_answer_length = int(max_answer_length)
        self.no_answer_threshold = (
            None if no_answer_threshold is None else float(no_answer_threshold)
        )
        self.offset_unit: str = offset_unit

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds answers, their offsets and scores, in the graph."""
        question, context = (texts[name] for name in self.text_names)
        read = self._read(question, context)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            best = self._best(read.rows, read.spans, tf.shape(context)[0])
            return self._answers(context, best)

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each row's windows; see `TextPipeline`."""
        question, context = (texts[name] for name in self.text_names)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            inputs = windows.question_windows(
                self.tokenizer, question, context, **self.window_lengths
            )
            return joined(self.real_tokens(inputs), inputs["rows"], tf.size(question))

    @property
    def explained(self) -> tuple[str, ...]:
        """The answer's score, which adds up the others, and the logits of its start and end."""
        return ("answer", "start", "end")

    def to_explain(self, spans: Sequence[Spans], texts: Sequence[tf.Tensor]) -> Explained:
        """Returns the window that has the answer, or that decides that there is none."""
        read = self._read(*texts)
        with tf.device("CPU:0"):
            best = self._best(read.rows, read.spans, tf.size(texts[0]))
            window = tf.where(best.is_answered, best.window, best.null_window)  # (batch,)
            others = {
                # Without an answer, its score is that of the first special token.
                name: tf.where(best.is_answered, tf.gather(read.spans[name], window), 0)
                for name in ("first", "last")
            }
            inputs = {name: tf.gather(value, window) for name, value in read.tokens.items()}
            places = tf.gather(read.numbers, window)
        return Explained(inputs, places, tf.range(tf.size(window)), others)

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes the logit of the answer's first token, of its last, or their sum."""
        start, end = (
            tf.gather(tf.cast(outputs[name], tf.float32), others[at], batch_dims=1)
            for name, at in zip(_LOGITS, ("first", "last"), strict=True)
        )
        return tf.where(index == 0, start + end, tf.where(index == 1, start, end))

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the model's logits, float32 (batch, length), 0 at padding, from its inputs."""
        outputs = self.run_model(tokens)
        return {
            name: zero_at_padding(tf.cast(outputs[name], tf.float32), tokens) for name in _LOGITS
        }

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        dtypes = {
            "answer": tf.string,
            "score": tf.float32,
            "start": tf.int32,
            "end": tf.int32,
            "null_score": tf.float32,
        }
        return {name: tf.TensorSpec([None], dtype) for name, dtype in dtypes.items()}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, from the model's inputs to its logits."""
        logits = dict.fromkeys(_LOGITS, tf.TensorSpec([None, None], tf.float32))
        return {"tokens": self.tokens_signature(self.answer_tokens, logits, batches)}

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts (one has several windows) and an empty batch."""
        return super().example_batches(_EXAMPLES if examples is None else examples)

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {
            "max_answer_length": self.max_answer_length,
            "no_answer_threshold": self.no_answer_threshold,
            "offset_unit": self.offset_unit,
            **self.window_lengths,
        }

    @property
    def window_lengths(self) -> Mapping[str, int]:
        """The lengths of windows and questions, and the stride, in tokens; read only."""
        return MappingProxyType(
            {
                "max_sequence_length": self.max_sequence_length,
                "doc_stride": self.doc_stride,
                "max_question_length": self.max_question_length,
            }
        )

    def _read(self, question: tf.Tensor, context: tf.Tensor) -> "_Read":
        """Reads contexts window by window."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            inputs = windows.question_windows(
                self.tokenizer, question, context, **self.window_lengths
            )
            tokens = widened({name: inputs[name] for name in self.token_inputs})
            missing = tf.shape(tokens["token_ids"])[1] - tf.shape(inputs["starts"])[1]
            starts, ends, numbers = (
                tf.pad(inputs[name], [[0, 0], [0, missing]], constant_values=-1)
                for name in ("starts", "ends", "numbers")
            )
        score, places = tf.TensorSpec([None], tf.float64), tf.TensorSpec([None], tf.int32)
        spans = in_chunks(
            self._best_spans,
            tokens | {"starts": starts, "ends": ends},
            {
                **dict.fromkeys(("score", "null_score"), score),
                **dict.fromkeys(("start", "end", "first", "last"), places),
            },
        )
        return _Read(tokens, numbers, inputs["rows"], spans)

    def _best_spans(self, window: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns each window's best span and its null score: (windows,).

        The span is from `start` to `end` in bytes of the context, and of the tokens at `first` to
        `last`.

        It computes in float64, where sums of two float32 numbers are exact enough to detect ties.
        """
        starts, ends = window.pop("starts"), window.pop("ends")
        outputs = self.run_model(window)
        first, last = (tf.cast(outputs[name], tf.float64) for name in _LOGITS)  # (windows, length)
        null_score = first[:, 0] + last[:, 0]
        nothing = tf.constant(-math.inf, tf.float64)
        first, last = (tf.where(starts >= 0, logits, nothing) for logits in (first, last))
        num_lengths = self.max_answer_length
        length = tf.shape(first)[1]
        ahead = tf.range(length)[:, None] + tf.range(num_lengths)  # (length, lengths of a span)
        last = tf.pad(last, [[0, 0], [0, num_lengths - 1]], constant_values=nothing)
        scores = first[..., None] + tf.gather(last, ahead, axis=1)  # (windows, length, lengths)
        scores = tf.reshape(scores, [-1, length * num_lengths])
        best = tf.reduce_max(scores, axis=1)
        # The first of ties; tf.argmax does not guarantee that on every device.
        candidates = tf.where(scores == best[:, None], tf.range(length * num_lengths), tf.int32.max)
        at = tf.reduce_min(candidates, axis=1)
        from_token, num_more = at // num_lengths, at % num_lengths
        return {
            "score": best,
            "start": tf.gather(starts, from_token, batch_dims=1),
            "end": tf.gather(ends, from_token + num_more, batch_dims=1),
            "first": from_token,
            "last": from_token + num_more,
            "null_score": null_score,
        }

    def _best(self, rows: tf.Tensor, spans: Mapping[str, tf.Tensor], batch: tf.Tensor) -> "_Best":
        """Returns the best span among the windows of each row.

        Args:
            rows: the row of each window.
            spans: what `_best_spans` returns.
            batch: number of rows.
        """
        score = tf.math.unsorted_segment_max(spans["score"], rows, batch)
        null_score = tf.math.unsorted_segment_min(spans["null_score"], rows, batch)
        # The first of ties, then the shortest. "No span" is -1 to -1.
        start, end = (tf.cast(spans[name] + 1, tf.int64) for name in ("start", "end"))
        key = start * _KEY_BASE + end
        of_window = tf.where(spans["score"] == tf.gather(score, rows), key, tf.int64.max)
        key = tf.math.unsorted_segment_min(of_window, rows, batch)
        start, end = (tf.cast(part, tf.int32) - 1 for part in (key // _KEY_BASE, key % _KEY_BASE))
        answered = start >= 0
        if self.no_answer_threshold is not None:
            answered &= null_score - score <= self.no_answer_threshold
        number = tf.range(tf.size(rows))
        window, null_window = (
            tf.math.unsorted_segment_min(tf.where(is_it, number, tf.int32.max), rows, batch)
            for is_it in (
                of_window == tf.gather(key, rows),
                spans["null_score"] == tf.gather(null_score, rows),
            )
        )
        return _Best(answered, start, end, score, null_score, window, null_window)

    def _answers(self, context: tf.Tensor, best: "_Best") -> dict[str, tf.Tensor]:
        """Returns the answers of rows."""
        answered, score, null_score = best.is_answered, best.score, best.null_score
        start, end = (tf.where(answered, offset, 0) for offset in (best.start, best.end))
        answer = tf.strings.substr(context, start, end - start)
        if self.offset_unit == "character":
            pairs = tf.RaggedTensor.from_tensor(tf.stack([start, end], axis=1))
            pairs = tf.reshape(offsets.to_characters(context, pairs).values, [-1, 2])
            start, end = pairs[:, 0], pairs[:, 1]
        return {
            "answer": answer,
            "score": tf.cast(tf.where(answered, score, null_score), tf.float32),
            "start": tf.where(answered, start, -1),
            "end": tf.where(answered, end, -1),
            "null_score": tf.cast(null_score, tf.float32),
        }
