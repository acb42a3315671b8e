"""Reports on answers to questions: by kind of question and length of the answer."""

import re
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from keras_transformers.evaluation.reports.report import Report, ReportTable, counted, on_one_line
from keras_transformers.evaluation.squad import normalize_answer, squad_v2_scores

__all__ = ["question_report"]

# The figures -> whether higher is better.
QUESTION_FIGURES = MappingProxyType({"exact_match": True, "f1": True, "empty_answers": False})
_NUM_MISTAKES = 10
_KIND = re.compile(r"\b(how many|how much|who|whom|whose|what|when|where|why|which|how)\b")
_SAME = {"whom": "who", "whose": "who", "how much": "how many"}
_LENGTHS = ((0, "no answer"), (1, "1 word"), (3, "2 to 3 words"), (7, "4 to 7 words"))
_LONG = "8 words or more"
_OTHER = "other"


def question_report(
    answers: Sequence[str],
    references: Sequence[Sequence[str]],
    questions: Sequence[str],
    *,
    title: str = "question answering",
) -> Report:
    """Reports on answers, as SQuAD 2.0's script scores them.

    Args:
        answers: an answer per question; "" for none.
        references: the correct answers to each question; none if it has no answer.
        questions: the questions. Their kind is the first English question word in them.
        title: the task.

    Returns:
        The figures exact_match and f1, 0 to 100, and empty_answers, the share of answerable
        questions that get none, 0 to 1; the tables kinds, lengths, by the shortest correct answer,
        and mistakes.

    Raises:
        ValueError: there are no questions, or the numbers differ.

    Example:
        >>> report = question_report(["the Rhine"], [["Rhine"]], ["Which river is it?"])
        >>> report.to_dict()["tables"]["kinds"]["rows"]
        [['which', 1, 100.0, 100.0]]
    """
    if not len(answers) == len(references) == len(questions):
        raise ValueError(
            f"{len(answers)} answers, {len(references)} lists of references, {len(questions)} "
            "questions: pass one of each per question"
        )
    scores = [
        squad_v2_scores({"": answer}, {"": texts}).overall
        for answer, texts in zip(answers, references, strict=True)
    ]
    exact = np.array([score.exact_match for score in scores])
    f1 = np.array([score.f1 for score in scores])
    answerable = np.array([bool(texts) for texts in references])
    empty = np.array([not answer for answer in answers])
    kinds = [_kind(question) for question in questions]
    lengths = [_length(texts) for texts in references]
    order = [name for _, name in _LENGTHS] + [_LONG]
    figures = {
        "exact_match": float(exact.mean()),
        "f1": float(f1.mean()),
        "empty_answers": float(empty[answerable].mean()) if answerable.any() else 0.0,
    }
    by_kind = _groups("By kind of question", "kind", kinds, sorted(set(kinds)), exact, f1)
    by_length = _groups("By length of the shortest answer", "answer", lengths, order, exact, f1)
    return Report(
        title=f"{title}: {counted(len(questions), 'question')}",
        findings=_findings(figures, by_kind, by_length, answerable, empty),
        figures=figures,
        tables={
            "kinds": by_kind,
            "lengths": by_length,
            "mistakes": _mistakes(answers, references, questions, f1),
        },
    )


def _kind(question: str) -> str:
    match = _KIND.search(question.lower())
    return _OTHER if match is None else _SAME.get(match[1], match[1])


def _length(texts: Sequence[str]) -> str:
    count = min((len(normalize_answer(text).split()) or 1 for text in texts), default=0)
    return next((name for most, name in _LENGTHS if count <= most), _LONG)


def _groups(
    title: str,
    heading: str,
    group_of: Sequence[str],
    names: Sequence[str],
    exact: np.ndarray,
    f1: np.ndarray,
) -> ReportTable:
    rows = []
    for name in names:
        chosen = np.array([group == name for group in group_of])
        if chosen.any():
            means = float(exact[chosen].mean()), float(f1[chosen].mean())
            rows.append((name, int(chosen.sum()), *means))
    return ReportTable(title, (heading, "count", "exact match", "f1"), rows)


def _findings(
    figures: dict[str, float],
    kinds: ReportTable,
    lengths: ReportTable,
    answerable: np.ndarray,
    empty: np.ndarray,
) -> list[str]:
    findings = [f"Exact match {figures['exact_match']:.2f}, F1 {figures['f1']:.2f} of 100."]
    for table in (kinds, lengths):
        if len(table.rows) > 1:
            worst = min(table.rows, key=lambda row: row[3])  # type: ignore[arg-type, return-value]
            findings.append(
                f"{table.title}, the lowest F1 is {worst[3]:.2f}: {worst[0]} ({worst[1]})."
            )
    if not answerable.all():
        right = int((empty & ~answerable).sum())
        findings.append(
            f"{right} of {int((~answerable).sum())} questions without an answer get none; "
            f"{int((empty & answerable).sum())} of {int(answerable.sum())} others get none either."
        )
    return findings


def _mistakes(
    answers: Sequence[str],
    references: Sequence[Sequence[str]],
    questions: Sequence[str],
    f1: np.ndarray,
) -> ReportTable:
    order = np.argsort(f1, kind="stable")[:_NUM_MISTAKES].tolist()
    rows = [
        (
            i,
            float(f1[i]),
            on_one_line(questions[i]),
            on_one_line(references[i][0]) if references[i] else "(none)",
            on_one_line(answers[i]) or "(none)",
        )
        for i in order
        if f1[i] < 100
    ]
    return ReportTable("Lowest F1", ("row", "f1", "question", "expected", "answer"), rows)
