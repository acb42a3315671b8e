"""Batches questions paired with windows of their contexts.

The answer is a span of tokens (Devlin et al. 2018, sections 4.2 and 4.3): the model gives each
token a start logit and an end logit. If a window lacks part of the answer, or the question has
none, start and end are the first token, [CLS]. `answer_spans` turns logits into answers.
"""

import dataclasses
import logging
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.squad import Answer, Questions
from keras_transformers.tokenizers import packing, windows

__all__ = ["QuestionBatches"]

_logger = logging.getLogger(__name__)

_NO_ANSWER = -1  # the question has no answer
_NOT_FOUND = -2  # no answer is at its offset, or none has tokens


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of questions and of their windows."""

    source: str
    num_questions: int
    num_windows: int
    num_in_several: int
    num_trimmed: int
    num_without_answer: int
    num_not_found: int
    num_inexact: int

    def __str__(self) -> str:
        return (
            f"{self.source}: {self.num_questions} questions in {self.num_windows} windows, "
            f"{self.num_in_several} in more than one, {self.num_trimmed} trimmed; "
            f"{self.num_without_answer} without answer, {self.num_not_found} whose answer was not "
            f"found, which are left out of training, {self.num_inexact} whose answer starts or "
            "ends inside a token"
        )


class QuestionBatches(LengthBatches):
    """Batches of (inputs, {"start_logits": positions, "end_logits": positions}), or just inputs.

    Rows are windows. Positions, int32 (batch,), are those of the answer's first and last token in
    the window. Of several answers, the first one found is the target. The constructor tokenizes the
    texts and logs `statistics`.

    Args:
        questions: questions to batch.
        answerer: a `pipelines.QuestionAnswerer`, which tokenizes, packs and defines the windows.
        batch_size: windows per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`.
        targets: whether to include positions and leave out the windows of questions whose answer
            was not found. Otherwise batches contain the inputs of all windows.

    Attributes:
        starts: start of each token of a context, in bytes: int32 (contexts, None).
        ends: end of each token, exclusive: int32 (contexts, None).
        windows: the context tokens in each row.
        context_starts: position in each question's rows where the context starts: int64
            (questions,).
        answer_tokens: first and last token of the answer in its context: int64 (questions, 2); -1
            without answer, -2 if it was not found.
        statistics: counts of questions and windows.

    Raises:
        ValueError: there are no questions, `targets` is True but the questions have no answers, no
            window is left, or the batch size is below 1.
    """

    def __init__(
        self,
        questions: Questions,
        answerer: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
        targets: bool = True,
    ) -> None:
        if not len(questions):
            raise ValueError(f"{questions.source}: no questions")
        if targets and questions.answers is None:
            raise ValueError(f"{questions.source}: no answers, so targets must be False")
        self.questions = questions
        self.answerer = answerer
        self._row_size = batch_size
        tokenizer, lengths = answerer.tokenizer, answerer.window_lengths
        all_ids = tokenizer.tokenize(questions.questions)
        self._question_ids = packing.trim(all_ids, lengths["max_question_length"])
        self._context_ids, self.starts, self.ends = tokenizer.tokenize_with_offsets(
            questions.contexts
        )
        num_tokens = self._question_ids.row_lengths()
        self.windows = windows.plan_question_windows(
            tokenizer,
            num_tokens,
            tf.gather(self._context_ids.row_lengths(), questions.context_of),
            max_sequence_length=lengths["max_sequence_length"],
            doc_stride=lengths["doc_stride"],
        )
        before, between, after = map(len, tokenizer.special_tokens(2))
        self.context_starts = num_tokens.numpy() + before + between
        self.answer_tokens, num_inexact = _answer_tokens(questions, self.starts, self.ends)
        num_trimmed = int(np.sum(all_ids.row_lengths() > lengths["max_question_length"]))
        self.statistics = self._statistics(num_trimmed, num_inexact)
        warns = self.statistics.num_trimmed or self.statistics.num_not_found
        _logger.log(logging.WARNING if warns else logging.INFO, "%s", self.statistics)
        self._positions = None
        if targets:
            is_found = self.answer_tokens[self.windows.rows, 0] != _NOT_FOUND
            if not is_found.any():
                raise ValueError(f"{questions.source}: found no answer to any question")
            self.windows = windows.Windows(*(part[is_found] for part in self.windows))
            self._positions = self._answer_positions()
        rows, _, num_cut = (part.numpy() for part in self.windows)
        weights = None if questions.weights is None else np.array(questions.weights)[rows]
        super().__init__(
            self.context_starts[rows] + num_cut + after,
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
            static_shapes=static_shapes,
            weights=weights,
        )

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the windows at `indices`, int32 (batch,); runs in graphs."""
        rows, starts, lengths = (tf.gather(part, indices) for part in self.windows)
        contexts = tf.gather(tf.constant(self.questions.context_of, tf.int64), rows)
        cut = windows.cut(self._context_ids, windows.Windows(contexts, starts, lengths))
        inputs = self.answerer.pack([tf.gather(self._question_ids, rows), cut])
        if self._positions is None:
            return inputs
        at = tf.gather(self._positions, indices)  # (batch, 2)
        return inputs, {"start_logits": at[:, 0], "end_logits": at[:, 1]}

    def of(self, questions: Questions) -> Self:
        """Returns the inputs of all windows of other questions in order, for evaluation."""
        return type(self)(
            questions,
            self.answerer,
            batch_size=self._row_size,
            shuffle=False,
            static_shapes=self.static_shapes,
            targets=False,
        )

    def samples(self, count: int) -> Samples:
        """Returns the first questions with their answers."""
        texts = {
            "question": self.questions.questions[:count],
            "context": [self.questions.contexts[i] for i in self.questions.context_of[:count]],
        }
        answers = (self.questions.answers or ())[:count]
        expected = [" / ".join(dict.fromkeys(a.text for a in row)) for row in answers]
        return Samples(self.answerer, texts, expected)

    def _answer_positions(self) -> np.ndarray:
        """Returns start and end positions in windows: int32 (windows, 2)."""
        rows, starts, lengths = (part.numpy() for part in self.windows)
        tokens = self.answer_tokens[rows]  # (windows, 2)
        inside = (tokens[:, 0] >= starts) & (tokens[:, 1] < starts + lengths)
        shift = (self.context_starts[rows] - starts)[:, None]
        return np.where(inside[:, None], tokens + shift, 0).astype(np.int32)

    def _statistics(self, num_trimmed: int, num_inexact: int) -> Statistics:
        first = self.answer_tokens[:, 0]
        has_answers = self.questions.answers is not None
        return Statistics(
            self.questions.source,
            len(self.questions),
            len(self.windows.rows),
            int(np.sum(np.bincount(self.windows.rows.numpy()) > 1)),
            num_trimmed,
            int(np.sum(first == _NO_ANSWER)) if has_answers else 0,
            int(np.sum(first == _NOT_FOUND)),
            num_inexact,
        )


def _answer_tokens(
    questions: Questions, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[np.ndarray, int]:
    """Returns each answer's first and last token (questions, 2), and how many are inexact."""
    tokens = np.full((len(questions), 2), _NO_ANSWER)
    if questions.answers is None:
        return tokens, 0
    splits = starts.row_splits.numpy()
    all_starts, all_ends = starts.values.numpy(), ends.values.numpy()
    num_inexact = 0
    for i, (context, answers) in enumerate(
        zip(questions.context_of, questions.answers, strict=True)
    ):
        if not answers:
            continue
        here = slice(splits[context], splits[context + 1])
        bounds = all_starts[here], all_ends[here]
        spans = (_tokens_of(questions.contexts[context], answer, *bounds) for answer in answers)
        first, last, is_exact = next(filter(None, spans), (_NOT_FOUND, _NOT_FOUND, True))
        tokens[i] = first, last
        num_inexact += not is_exact
    return tokens, num_inexact


def _tokens_of(
    context: str, answer: Answer, starts: np.ndarray, ends: np.ndarray
) -> tuple[int, int, bool] | None:
    """Returns an answer's first and last token and whether they match exactly, or None."""
    if answer.start is None:
        return None
    start = len(context[: answer.start].encode())
    end = start + len(answer.text.encode())
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(starts, end, side="left")) - 1
    if first > last:
        return None
    return first, last, bool(starts[first] == start and ends[last] == end)
