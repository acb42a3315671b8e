"""Turns a model's logits into answers that are exact spans of the context."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.data.text.question_answering import QuestionBatches

__all__ = ["Prediction", "Span", "answer_texts", "answers_from_logits", "null_differences"]


@dataclasses.dataclass(frozen=True)
class Span:
    """A candidate answer: characters `start` to `end` (exclusive) of a context."""

    text: str
    start: int
    end: int
    score: float


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A model's answer to a question.

    Attributes:
        id: id of the question.
        spans: the best spans, best first; empty if the context has no tokens.
        null_score: score of the question having no answer.
    """

    id: str
    spans: tuple[Span, ...]
    null_score: float

    @property
    def null_difference(self) -> float:
        """The null score minus the score of the best span; infinite without spans."""
        return self.null_score - self.spans[0].score if self.spans else math.inf


def answers_from_logits(
    batches: QuestionBatches, outputs: Iterable[Mapping[str, Any]], *, num_best: int = 20
) -> list[Prediction]:
    """Returns the best spans of each question's context over all its windows.

    The score of a span is the start logit of its first token plus the end logit of its last token,
    in the window where the sum is highest. The null score is that of the first token, [CLS], in the
    window where it is lowest, since there is no answer only if no window has one.

    >>> answers_from_logits(batches, outputs_of(model, batches))  # doctest: +SKIP

    Args:
        batches: the model's inputs, from `QuestionBatches.of`. The `max_answer_length` of their
            pipeline limits the length of spans.
        outputs: model outputs for each batch: `start_logits` and `end_logits`, each
            (batch, length), padded to any length.
        num_best: number of spans to keep per question.

    Returns:
        One prediction per question, in order.

    Raises:
        ValueError: the numbers of logits and windows differ, or logits are too short or NaN.
    """
    questions, max_length = batches.questions, batches.answerer.max_answer_length
    spans: list[dict[tuple[int, int], float]] = [{} for _ in questions.ids]
    null_scores = [math.inf] * len(spans)
    rows, firsts, lengths = (part.numpy() for part in batches.windows)
    for window, start_logits, end_logits in _logits_of_windows(batches, outputs):
        row, first = rows[window], int(firsts[window])
        null_scores[row] = min(null_scores[row], float(start_logits[0] + end_logits[0]))
        at = batches.context_starts[row]
        here = slice(at, at + lengths[window])
        best = _best_spans(start_logits[here], end_logits[here], num_best, max_length)
        for start, end, score in best:
            key = first + start, first + end
            spans[row][key] = max(score, spans[row].get(key, -math.inf))
    located = _Contexts(batches)
    return [
        Prediction(
            question_id,
            tuple(
                located.span(questions.context_of[row], tokens, score)
                for tokens, score in sorted(
                    spans[row].items(), key=lambda item: (-item[1], item[0])
                )[:num_best]
            ),
            null_scores[row],
        )
        for row, question_id in enumerate(questions.ids)
    ]


def answer_texts(
    predictions: Sequence[Prediction], *, no_answer_threshold: float | None = None
) -> dict[str, str]:
    """Returns id -> answer, for the metrics and the official scripts.

    Args:
        predictions: predictions from `answers_from_logits`.
        no_answer_threshold: questions with a higher `null_difference` get an empty answer
            (SQuAD 2.0). None always takes the best span (SQuAD 1.1).
    """
    threshold = math.inf if no_answer_threshold is None else no_answer_threshold
    return {
        prediction.id: prediction.spans[0].text
        if prediction.spans and prediction.null_difference <= threshold
        else ""
        for prediction in predictions
    }


def null_differences(predictions: Sequence[Prediction]) -> dict[str, float]:
    """Returns id -> `null_difference`, for `evaluation.squad_v2_scores`."""
    return {prediction.id: prediction.null_difference for prediction in predictions}


class _Contexts:
    """Maps byte offsets in contexts to characters."""

    def __init__(self, batches: QuestionBatches) -> None:
        self._texts = batches.questions.contexts
        self._starts = batches.starts.values.numpy()
        self._ends = batches.ends.values.numpy()
        self._first = batches.starts.row_starts().numpy()
        self._character: dict[int, np.ndarray] = {}

    def span(self, context: int, tokens: tuple[int, int], score: float) -> Span:
        """Returns the span from the start of the first token to the end of the last one."""
        if context not in self._character:
            self._character[context] = _characters_before(self._texts[context])
        character = self._character[context]
        first = self._first[context]
        start = int(character[self._starts[first + tokens[0]]])
        end = int(character[self._ends[first + tokens[1]]])
        return Span(self._texts[context][start:end], start, end, score)


def _characters_before(text: str) -> np.ndarray:
    """Counts the characters before each byte of the UTF-8 text, and in all of it: (bytes + 1,)."""
    starts = (np.frombuffer(text.encode(), np.uint8) & 0xC0) != 0x80
    return np.concatenate([[0], np.cumsum(starts)])


def _logits_of_windows(
    batches: QuestionBatches, outputs: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Checks logits and yields (window, start logits, end logits)."""
    lengths = batches.lengths
    window = 0
    for output in outputs:
        pair = [np.asarray(output[name], np.float64) for name in ("start_logits", "end_logits")]
        for start_logits, end_logits in zip(*pair, strict=True):
            if window == len(lengths):
                raise ValueError(f"logits of more than the {len(lengths)} windows in the batches")
            length = lengths[window]
            if min(len(start_logits), len(end_logits)) < length:
                raise ValueError(
                    f"window {window} has {length} tokens, but its logits {len(start_logits)}: "
                    "pass the logits of the batches in order"
                )
            if np.isnan(start_logits[:length]).any() or np.isnan(end_logits[:length]).any():
                raise ValueError(f"window {window}: NaN among the logits; has training diverged?")
            yield window, start_logits, end_logits
            window += 1
    if window < len(lengths):
        raise ValueError(f"logits of {window} windows, but there are {len(lengths)}")


def _best_spans(
    start_logits: np.ndarray, end_logits: np.ndarray, num_best: int, max_length: int
) -> list[tuple[int, int, float]]:
    """Returns the best (first, last, score) of a window; ties go to the first, then shortest."""
    if not len(start_logits):
        return []
    after = np.full(max_length - 1, -np.inf)
    last = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([end_logits, after]), max_length
    )  # (tokens, max_length): the end logits starting at each token
    scores = (start_logits[:, None] + last).ravel()
    num_best = min(num_best, len(scores))
    least = np.partition(scores, -num_best)[-num_best]
    chosen = np.flatnonzero((scores >= least) & np.isfinite(scores))
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")][:num_best]
    return [
        (int(at // max_length), int(at // max_length + at % max_length), float(scores[at]))
        for at in chosen
    ]
