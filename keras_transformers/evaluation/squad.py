"""Computes exact match and F1 of answers like the official scripts of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822.
"""

import dataclasses
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["AnswerScores", "SquadV2Scores", "squad_scores", "squad_v2_scores"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only


@dataclasses.dataclass(frozen=True)
class AnswerScores:
    """Holds mean scores over questions, 0 to 100.

    Attributes:
        exact_match: share of answers that equal a reference after normalization.
        f1: mean word overlap with the closest reference.
        total: number of questions.
    """

    exact_match: float
    f1: float
    total: int


@dataclasses.dataclass(frozen=True)
class Threshold:
    """Holds a score and the no-answer threshold that reaches it."""

    score: float
    threshold: float


@dataclasses.dataclass(frozen=True)
class SquadV2Scores:
    """Holds scores of questions, some of which have no answer.

    Attributes:
        overall: scores over all questions.
        has_answer: scores over questions with an answer; None if there are none.
        no_answer: scores over questions without one; None if there are none.
        best_exact_match: the highest exact match that any threshold on the null scores reaches on
            these questions; None without null scores.
        best_f1: the same for F1.
    """

    overall: AnswerScores
    has_answer: AnswerScores | None
    no_answer: AnswerScores | None
    best_exact_match: Threshold | None = None
    best_f1: Threshold | None = None


def normalize_answer(text: str) -> str:
    """Lowercases; drops ASCII punctuation, articles (a, an, the) and repeated white space.

    >>> normalize_answer("The  U.S. «dollar»!")
    'us «dollar»'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def squad_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> AnswerScores:
    """Computes the scores of SQuAD 1.1.

    Args:
        predictions: id -> answer; may be an empty string.
        references: id -> correct answers, at least one; the closest counts.

    Raises:
        ValueError: there are no questions, a question has no reference, or the ids differ (the
            official script scores missing ids 0 and ignores unknown ones).

    Example:
        >>> squad_scores({"a": "the Rhine", "b": ""}, {"a": ["Rhine", "a river"], "b": ["Bonn"]})
        AnswerScores(exact_match=50.0, f1=50.0, total=2)
    """
    _check_ids(predictions, references)
    unanswered = [i for i, texts in references.items() if not texts]
    if unanswered:
        raise ValueError(
            f"{len(unanswered)} questions have no reference, such as {unanswered[0]!r}: for SQuAD "
            "2.0 use squad_v2_scores"
        )
    exact = {
        i: max(_exact_match(predictions[i], text) for text in texts)
        for i, texts in references.items()
    }
    overlap = {
        i: max(_f1(predictions[i], text) for text in texts) for i, texts in references.items()
    }
    return _means(exact, overlap, list(references))


def squad_v2_scores(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    null_scores: Mapping[str, float] | None = None,
    threshold: float | None = None,
) -> SquadV2Scores:
    """Computes the scores of SQuAD 2.0.

    Args:
        predictions: id -> answer; an empty string for no answer.
        references: id -> correct answers; an empty list for unanswerable questions.
        null_scores: id -> score that is higher the less likely the question has an answer, from
            `data.text.null_differences`; na_prob in the official script.
        threshold: answers with a higher null score count as empty. None keeps all answers.

    Raises:
        ValueError: there are no questions, the ids differ, or null scores are missing.

    Example:
        >>> scores = squad_v2_scores({"a": "Rhine", "b": "Bonn"}, {"a": ["the Rhine"], "b": []},
        ...                          null_scores={"a": -2.0, "b": 1.0})
        >>> scores.overall.f1, scores.best_f1
        (50.0, Threshold(score=100.0, threshold=-2.0))
    """
    _check_ids(predictions, references)
    if threshold is not None and null_scores is None:
        raise ValueError(f"threshold={threshold} needs null_scores: pass both or neither")
    exact, overlap = {}, {}
    for i, texts in references.items():
        expected = [text for text in texts if normalize_answer(text)] or [""]
        exact[i] = max(_exact_match(predictions[i], text) for text in expected)
        # No answer is correct here if there is none; SQuAD 1.1 would score this overlap 0.
        overlap[i] = (
            exact[i] if expected == [""] else max(_f1(predictions[i], text) for text in expected)
        )
    answered = {i: bool(texts) for i, texts in references.items()}
    best_exact = best_f1 = None
    if null_scores is not None:
        _check_ids(null_scores, references)
        best_exact = _best_threshold(predictions, exact, null_scores, answered)
        best_f1 = _best_threshold(predictions, overlap, null_scores, answered)
    if threshold is not None and null_scores is not None:
        for i in references:
            if null_scores[i] > threshold:
                exact[i] = overlap[i] = float(not answered[i])
    with_answer = [i for i in references if answered[i]]
    without = [i for i in references if not answered[i]]
    return SquadV2Scores(
        _means(exact, overlap, list(references)),
        _means(exact, overlap, with_answer) if with_answer else None,
        _means(exact, overlap, without) if without else None,
        best_exact,
        best_f1,
    )


def _exact_match(answer: str, reference: str) -> float:
    return float(normalize_answer(answer) == normalize_answer(reference))


def _f1(answer: str, reference: str) -> float:
    """Returns the harmonic mean of word precision and recall; 0 if both texts are empty."""
    words, expected = normalize_answer(answer).split(), normalize_answer(reference).split()
    num_same = (Counter(words) & Counter(expected)).total()
    if not num_same:
        return 0.0
    precision, recall = num_same / len(words), num_same / len(expected)
    return 2 * precision * recall / (precision + recall)


def _best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_scores: Mapping[str, float],
    answered: Mapping[str, bool],
) -> Threshold:
    """Finds the threshold with the highest total score, exactly as the official script does.

    It starts with all answers empty and accepts them one by one, by rising null score. Equal null
    scores are taken one after the other, in the order of `null_scores`, so that the best score may
    be one that no threshold quite reaches.
    """
    score: float = sum(not has_answer for has_answer in answered.values())
    best, threshold = score, 0.0
    for i in sorted(null_scores, key=null_scores.__getitem__):
        if answered[i]:
            score += scores[i]
        elif predictions[i]:
            score -= 1
        if score > best:
            best, threshold = score, null_scores[i]
    return Threshold(100 * best / len(scores), threshold)


def _check_ids(predictions: Mapping[str, object], references: Mapping[str, Sequence[str]]) -> None:
    if not references:
        raise ValueError("no questions to score")
    missing = [i for i in references if i not in predictions]
    unknown = [i for i in predictions if i not in references]
    for problem, ids in (("missing", missing), ("unknown", unknown)):
        if ids:
            raise ValueError(
                f"{len(ids)} ids are {problem} in the predictions, such as {ids[0]!r}: pass one "
                f"answer for each of the {len(references)} questions"
            )


def _means(
    exact: Mapping[str, float], overlap: Mapping[str, float], ids: Sequence[str]
) -> AnswerScores:
    total = len(ids)
    return AnswerScores(
        100 * sum(exact[i] for i in ids) / total, 100 * sum(overlap[i] for i in ids) / total, total
    )
