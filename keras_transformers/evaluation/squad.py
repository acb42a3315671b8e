"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 compute them.

Rajpurkar et al. 2016, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822.
"""

import dataclasses
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII's only


@dataclasses.dataclass(frozen=True)
class AnswerScores:
    """Means over questions, 0 to 100.

    Attributes:
        exact_match: share of answers that equal a reference, once normalized.
        f1: mean overlap of words with the reference that is most alike.
        total: number of questions.
    """

    exact_match: float
    f1: float
    total: int


@dataclasses.dataclass(frozen=True)
class Threshold:
    """A score, and the no-answer threshold that reaches it."""

    score: float
    threshold: float


@dataclasses.dataclass(frozen=True)
class SquadV2Scores:
    """Scores of questions of which some have no answer.

    Attributes:
        overall: of all questions.
        has_answer: of those with an answer; None if there are none.
        no_answer: of those without; None if there are none.
        best_exact_match: the highest that a threshold on the null scores reaches, on these very
            questions; None without null scores.
        best_f1: likewise.
    """

    overall: AnswerScores
    has_answer: AnswerScores | None
    no_answer: AnswerScores | None
    best_exact_match: Threshold | None = None
    best_f1: Threshold | None = None


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles (a, an, the) and repeated white space.

    >>> normalize_answer("The  U.S. «dollar»!")
    'us «dollar»'
    """
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
    return " ".join(words)


def exact_match(answer: str, reference: str) -> bool:
    """Whether two answers are the same, once normalized."""
    return normalize_answer(answer) == normalize_answer(reference)


def f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words; 0 if both are empty (SQuAD 1.1)."""
    words, expected = normalize_answer(answer).split(), normalize_answer(reference).split()
    num_same = (Counter(words) & Counter(expected)).total()
    if not num_same:
        return 0.0
    precision, recall = num_same / len(words), num_same / len(expected)
    return 2 * precision * recall / (precision + recall)


def f1_v2(answer: str, reference: str) -> float:
    """As `f1`, but 1 if both are empty: rightly no answer (SQuAD 2.0)."""
    if not normalize_answer(answer) and not normalize_answer(reference):
        return 1.0
    return f1(answer, reference)


def squad(predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> AnswerScores:
    """SQuAD 1.1's scores.

    Args:
        predictions: id -> answer; it may be empty.
        references: id -> the answers that count, one or more; the best match is taken.

    Raises:
        ValueError: the ids differ (the official script gives 0 for what is missing, and ignores
            the rest), there are none, or a question has no reference.

    Example:
        >>> squad({"a": "the Rhine", "b": ""}, {"a": ["Rhine", "a river"], "b": ["Bonn"]})
        AnswerScores(exact_match=50.0, f1=50.0, total=2)
    """
    _check_ids(predictions, references)
    unanswered = [i for i, texts in references.items() if not texts]
    if unanswered:
        raise ValueError(
            f"{len(unanswered)} questions have no reference, such as {unanswered[0]!r}: score "
            "SQuAD 2.0 with squad_v2"
        )
    exact = {
        i: max(float(exact_match(predictions[i], text)) for text in texts)
        for i, texts in references.items()
    }
    overlap = {
        i: max(f1(predictions[i], text) for text in texts) for i, texts in references.items()
    }
    return _means(exact, overlap, list(references))


def squad_v2(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    null_scores: Mapping[str, float] | None = None,
    threshold: float | None = None,
) -> SquadV2Scores:
    """SQuAD 2.0's scores.

    Args:
        predictions: id -> answer; empty for none.
        references: id -> the answers that count; none for questions without.
        null_scores: id -> a number that is the higher the less the question has an answer, such as
            `question_predictions.null_differences`; the official script's na_prob.
        threshold: answers count as empty where the null score is above it. None: none does.

    Raises:
        ValueError: the ids differ, or there are none; a threshold without null scores.

    Example:
        >>> scores = squad_v2({"a": "Rhine", "b": "Bonn"}, {"a": ["the Rhine"], "b": []},
        ...                   null_scores={"a": -2.0, "b": 1.0})
        >>> scores.overall.f1, scores.best_f1
        (50.0, Threshold(score=100.0, threshold=-2.0))
    """
    _check_ids(predictions, references)
    if threshold is not None and null_scores is None:
        raise ValueError(f"threshold={threshold} needs null_scores to compare with")
    exact, overlap = {}, {}
    for i, texts in references.items():
        expected = [text for text in texts if normalize_answer(text)] or [""]
        exact[i] = max(float(exact_match(predictions[i], text)) for text in expected)
        overlap[i] = max(f1_v2(predictions[i], text) for text in expected)
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


def _best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_scores: Mapping[str, float],
    answered: Mapping[str, bool],
) -> Threshold:
    """The threshold that makes the sum of scores highest: the official sweep, ties and all.

    From no answer at all to an answer everywhere, question by question by rising null score. Equal
    null scores are told apart, in the order of `null_scores`; so the score may be one that no
    threshold quite reaches.
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


def _check_ids(found: Mapping[str, object], references: Mapping[str, Sequence[str]]) -> None:
    if not references:
        raise ValueError("no questions to score")
    missing = [i for i in references if i not in found]
    unknown = [i for i in found if i not in references]
    for what, ids in (("lack", missing), ("are of no question with", unknown)):
        if ids:
            raise ValueError(
                f"the predictions {what} {len(ids)} ids, such as {ids[0]!r}: predict exactly the "
                f"{len(references)} questions"
            )


def _means(
    exact: Mapping[str, float], overlap: Mapping[str, float], ids: Sequence[str]
) -> AnswerScores:
    total = len(ids)
    return AnswerScores(
        100 * sum(exact[i] for i in ids) / total, 100 * sum(overlap[i] for i in ids) / total, total
    )
