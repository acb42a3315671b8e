"""Batches of questions beside windows of their contexts, that `model.fit` takes.

    squad.load -> encode -> dataset -> model -> question_predictions.answers_from_logits

The answer is a span of tokens (Devlin et al. 2018, sections 4.2 and 4.3): the model gives each
token a start logit and an end logit. A window that does not hold the whole answer, and a question
without one, have the row's first token, [CLS], for start and end.
"""

import dataclasses
import functools
import logging
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data import batching
from keras_transformers.data.text.squad import Answer, Questions
from keras_transformers.tokenizers import packing, windows

_logger = logging.getLogger(__name__)

_NO_ANSWER = -1  # the context does not tell
_NOT_FOUND = -2  # no answer of the file stands where it says, or it has no tokens


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What encoding did: counts of questions, but for `num_windows`."""

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
            f"found and that are left out of training, {self.num_inexact} whose answer begins or "
            "ends inside a token"
        )


@dataclasses.dataclass(frozen=True)
class EncodedQuestions:
    """Questions and contexts in tokens, and the windows over the contexts.

    Attributes:
        questions: as they were read.
        question_ids: int32 (questions, None), without special tokens, trimmed.
        context_ids: int32 (contexts, None), whole.
        starts: int32 (contexts, None), where each token begins, in bytes of the context.
        ends: int32 (contexts, None), exclusive.
        windows: which tokens of a question's context a window holds; the rows are questions.
        answer_tokens: int64 (questions, 2), the first and the last token of the answer in its
            context; -1 without answer, -2 where it was not found.
        max_sequence_length: of a window, special tokens included.
        statistics: what to report.
        tokenizer: that made the tokens and packs them.
    """

    questions: Questions
    question_ids: tf.RaggedTensor
    context_ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    windows: windows.Windows
    answer_tokens: np.ndarray
    max_sequence_length: int
    statistics: Statistics
    tokenizer: Any

    @functools.cached_property
    def context_starts(self) -> np.ndarray:
        """Where the context starts in a packed window of each question: int64 (questions,)."""
        num_special = sum(map(len, self.tokenizer.special_tokens(2)[:2]))
        return self.question_ids.row_lengths().numpy() + num_special

    @property
    def lengths(self) -> np.ndarray:
        """Of the windows, in tokens, special ones included: int64 (windows,)."""
        rows, _, lengths = (part.numpy() for part in self.windows)
        num_special = self.tokenizer.num_special_tokens(2)
        return self.question_ids.row_lengths().numpy()[rows] + lengths + num_special


def encode(
    questions: Questions,
    tokenizer: Any,
    *,
    max_sequence_length: int = 384,
    doc_stride: int = 128,
    max_question_length: int = 64,
) -> EncodedQuestions:
    """Questions and contexts to tokens, contexts to windows, answers to tokens.

    Logs the statistics. Of several answers the first that was found is trained on.

    Args:
        questions: what to encode.
        tokenizer: gives offsets.
        max_sequence_length: in tokens, special ones included.
        doc_stride: tokens of the context from one window's start to the next one's.
        max_question_length: in tokens; the end of a longer question is cut off.

    Raises:
        ValueError: there are no questions, or the lengths leave no room for a context.
    """
    if not len(questions):
        raise ValueError(f"{questions.source}: no questions")
    windows.check_question_windows(
        tokenizer,
        max_sequence_length=max_sequence_length,
        doc_stride=doc_stride,
        max_question_length=max_question_length,
    )
    all_ids = tokenizer.tokenize(questions.questions)
    question_ids = packing.trim(all_ids, max_question_length)
    context_ids, starts, ends = tokenizer.tokenize_with_offsets(questions.contexts)
    plan = windows.plan_question_windows(
        tokenizer,
        question_ids.row_lengths(),
        tf.gather(context_ids.row_lengths(), questions.context_of),
        max_sequence_length=max_sequence_length,
        doc_stride=doc_stride,
    )
    answer_tokens, num_inexact = _answer_tokens(questions, starts, ends)
    statistics = Statistics(
        questions.source,
        len(questions),
        len(plan.rows),
        int(np.sum(np.bincount(plan.rows.numpy()) > 1)),
        int(np.sum(all_ids.row_lengths().numpy() > max_question_length)),
        int(np.sum(answer_tokens[:, 0] == _NO_ANSWER)) if questions.answers is not None else 0,
        int(np.sum(answer_tokens[:, 0] == _NOT_FOUND)),
        num_inexact,
    )
    _logger.log(
        logging.WARNING if statistics.num_trimmed or statistics.num_not_found else logging.INFO,
        "%s",
        statistics,
    )
    return EncodedQuestions(
        questions,
        question_ids,
        context_ids,
        starts,
        ends,
        plan,
        answer_tokens,
        max_sequence_length,
        statistics,
        tokenizer,
    )


def dataset(
    encoded: EncodedQuestions,
    *,
    targets: bool,
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches of windows: inputs, or (inputs, {"start_logits": positions, "end_logits": ...}).

    The inputs are those that the tokenizer packs, (batch, length); the positions, of the answer's
    first and last token in the window, are int32 (batch,). A batch is as long as its longest
    window; shuffled batches hold windows of about the same length.

    Args:
        encoded: what to batch.
        targets: whether with positions; then the windows of questions whose answer was not found
            are left out. Without, all windows come, in order unless shuffled.
        batch_size: windows per batch; the last one may be smaller.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: the questions came without answers and `targets` are asked for; no window is
            left; a batch size below 1.
    """
    lengths = encoded.lengths
    chosen = np.arange(len(lengths))
    positions = None
    if targets:
        if encoded.questions.answers is None:
            raise ValueError(f"{encoded.questions.source}: questions without answers, no targets")
        positions, found = _positions(encoded)
        chosen = np.flatnonzero(found)
    if not len(chosen):
        raise ValueError(f"{encoded.questions.source}: no question has an answer that was found")

    def batch(indices: tf.Tensor) -> Any:
        indices = tf.gather(chosen, indices)
        inputs = _inputs(encoded, indices)
        if positions is None:
            return inputs
        at = tf.gather(positions, indices)  # (batch, 2)
        return inputs, {"start_logits": at[:, 0], "end_logits": at[:, 1]}

    batches = batching.index_batches(
        lengths[chosen], batch_size=batch_size, shuffle=shuffle, seed=seed
    )
    return batches.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(
        tf.data.AUTOTUNE
    )


def _answer_tokens(
    questions: Questions, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[np.ndarray, int]:
    """The tokens of each question's answer (questions, 2), and how many are not exactly it."""
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
        found = (_tokens_of(questions.contexts[context], answer, *bounds) for answer in answers)
        first, last, is_exact = next(filter(None, found), (_NOT_FOUND, _NOT_FOUND, True))
        tokens[i] = first, last
        num_inexact += not is_exact
    return tokens, num_inexact


def _tokens_of(
    context: str, answer: Answer, starts: np.ndarray, ends: np.ndarray
) -> tuple[int, int, bool] | None:
    """First and last token of an answer, and whether they are it exactly; None: no token is."""
    if answer.start is None:
        return None
    start = len(context[: answer.start].encode())
    end = start + len(answer.text.encode())
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(starts, end, side="left")) - 1
    if first > last:
        return None
    return first, last, bool(starts[first] == start and ends[last] == end)


def _positions(encoded: EncodedQuestions) -> tuple[np.ndarray, np.ndarray]:
    """Start and end positions in windows, int32 (windows, 2), and which windows to train on."""
    rows, starts, lengths = (part.numpy() for part in encoded.windows)
    tokens = encoded.answer_tokens[rows]  # (windows, 2)
    inside = (tokens[:, 0] >= starts) & (tokens[:, 1] < starts + lengths)
    shift = (encoded.context_starts[rows] - starts)[:, None]
    positions = np.where(inside[:, None], tokens + shift, 0)
    return positions.astype(np.int32), tokens[:, 0] != _NOT_FOUND


def _inputs(encoded: EncodedQuestions, indices: tf.Tensor) -> dict[str, tf.Tensor]:
    rows, starts, lengths = (tf.gather(part, indices) for part in encoded.windows)
    contexts = tf.gather(tf.constant(encoded.questions.context_of, tf.int64), rows)
    return encoded.tokenizer.pack(
        [
            tf.gather(encoded.question_ids, rows),
            windows.cut(encoded.context_ids, windows.Windows(contexts, starts, lengths)),
        ],
        max_sequence_length=encoded.max_sequence_length,
    )
