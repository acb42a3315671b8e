"""From a model's logits back to answers, which are exact spans of the context."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.data.text.question_answering import QuestionBatches

__all__ = ["Prediction", "Span", "answer_texts", "answers_from_logits", "null_differences"]


@dataclasses.dataclass(frozen=True)
class Span:
    """A span of a context that may be the answer; positions in characters, the end exclusive."""

    text: str
    start: int
    end: int
    score: float


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model answers to a question.

    Attributes:
        id: of the question.
        spans: the best ones, best first; none if the context has no tokens.
        null_score: the score of there being no answer.
    """

    id: str
    spans: tuple[Span, ...]
    null_score: float

    @property
    def null_difference(self) -> float:
        """How much better no answer scores than the best span; infinite without spans."""
        return self.null_score - self.spans[0].score if self.spans else math.inf


def answers_from_logits(
    batches: QuestionBatches, outputs: Iterable[Mapping[str, Any]], *, num_best: int = 20
) -> list[Prediction]:
    """The best spans of each question's context, over all its windows.

    A span's score is the start logit of its first token plus the end logit of its last one, in the
    window where that is highest. The score of no answer is that of the first token, [CLS], in the
    window where it is lowest: no window may hold the answer.

    >>> answers_from_logits(batches, outputs_of(model, batches))  # doctest: +SKIP

    Args:
        batches: what the model was asked, as `QuestionBatches.of` makes them; spans are no longer
            than the `max_answer_length` of their pipeline.
        outputs: of the model, for each batch: `start_logits` and `end_logits`, each
            (batch, length). Padding may be of any length.
        num_best: spans to keep for each question.

    Returns:
        A prediction for each question, in order.

    Raises:
        ValueError: there are more windows than logits, or fewer; logits are too short or NaN.
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
    """Id -> answer, as the metrics and the official scripts take it.

    Args:
        predictions: of `answers_from_logits`.
        no_answer_threshold: the answer is empty where the score of no answer is higher than that of
            the best span by more than this (SQuAD 2.0). None: always the best span (SQuAD 1.1).
    """
    threshold = math.inf if no_answer_threshold is None else no_answer_threshold
    return {
        prediction.id: prediction.spans[0].text
        if prediction.spans and prediction.null_difference <= threshold
        else ""
        for prediction in predictions
    }


def null_differences(predictions: Sequence[Prediction]) -> dict[str, float]:
    """Id -> `null_difference`, as `evaluation.squad_v2_scores` takes it."""
    return {prediction.id: prediction.null_difference for prediction in predictions}


class _Contexts:
    """Contexts as bytes, to find characters by byte offsets."""

    def __init__(self, batches: QuestionBatches) -> None:
        self._texts = batches.questions.contexts
        self._starts = batches.starts.values.numpy()
        self._ends = batches.ends.values.numpy()
        self._first = batches.starts.row_starts().numpy()
        self._character: dict[int, np.ndarray] = {}

    def span(self, context: int, tokens: tuple[int, int], score: float) -> Span:
        """The text from the first token's start to the last one's end."""
        if context not in self._character:
            self._character[context] = _characters_before(self._texts[context])
        character = self._character[context]
        first = self._first[context]
        start = int(character[self._starts[first + tokens[0]]])
        end = int(character[self._ends[first + tokens[1]]])
        return Span(self._texts[context][start:end], start, end, score)


def _characters_before(text: str) -> np.ndarray:
    """How many characters start before each byte of the UTF-8 text, and in all: (bytes + 1,)."""
    starts = (np.frombuffer(text.encode(), np.uint8) & 0xC0) != 0x80
    return np.concatenate([[0], np.cumsum(starts)])


def _logits_of_windows(
    batches: QuestionBatches, outputs: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields (window, start logits, end logits), checked."""
    lengths = batches.lengths
    window = 0
    for output in outputs:
        pair = [np.asarray(output[name], np.float64) for name in ("start_logits", "end_logits")]
        for start_logits, end_logits in zip(*pair, strict=True):
            if window == len(lengths):
                raise ValueError(f"logits of more windows than the {len(lengths)} there are")
            length = lengths[window]
            if min(len(start_logits), len(end_logits)) < length:
                raise ValueError(
                    f"window {window} has {length} tokens, its logits {len(start_logits)}: give "
                    "them for the batches in order"
                )
            if np.isnan(start_logits[:length]).any() or np.isnan(end_logits[:length]).any():
                raise ValueError(f"window {window}: NaN among the logits; has training diverged?")
            yield window, start_logits, end_logits
            window += 1
    if window < len(lengths):
        raise ValueError(f"logits of {window} windows, there are {len(lengths)}")


def _best_spans(
    start_logits: np.ndarray, end_logits: np.ndarray, num_best: int, max_length: int
) -> list[tuple[int, int, float]]:
    """The best (first, last, score) of a window, best first; of equals the first, then shortest."""
    if not len(start_logits):
        return []
    after = np.full(max_length - 1, -np.inf)
    last = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([end_logits, after]), max_length
    )  # (tokens, max_length): the end logits from each token on
    scores = (start_logits[:, None] + last).ravel()
    num_best = min(num_best, len(scores))
    least = np.partition(scores, -num_best)[-num_best]
    chosen = np.flatnonzero((scores >= least) & np.isfinite(scores))
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")][:num_best]
    return [
        (int(at // max_length), int(at // max_length + at % max_length), float(scores[at]))
        for at in chosen
    ]
