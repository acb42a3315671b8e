"""Reports on several labels per example."""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.evaluation.multi_label import multi_label_scores
from keras_transformers.evaluation.reports.calibration import (
    ConfidencePart,
    Confidences,
    Selection,
)
from keras_transformers.evaluation.reports.classification import most_confident, never_predicted
from keras_transformers.evaluation.reports.counts import COLUMNS, MEANS, ClassCounts, lowest
from keras_transformers.evaluation.reports.report import (
    Report,
    ReportTable,
    counted,
    listed,
    on_one_line,
)
from keras_transformers.evaluation.temperature import at_temperature

__all__ = ["multi_label_report"]

# The figures -> whether higher is better.
MULTI_LABEL_FIGURES = MappingProxyType(
    {
        **dict.fromkeys((f"micro_{name}" for name in COLUMNS[:3]), True),
        **dict.fromkeys(MEANS, True),
        "mean_average_precision": True,
        "exact_match": True,
        "calibration_error": False,
        "log_loss": False,
    }
)
_NUM_MISTAKES = 10
_NUM_PAIRS = 10


def multi_label_report(
    probabilities: ArrayLike,
    references: ArrayLike,
    labels: Sequence[str],
    *,
    thresholds: float | Sequence[float] = 0.5,
    texts: Sequence[str] | None = None,
    temperature: float = 1.0,
    abstain_below: float | None = None,
    title: str = "several labels",
) -> Report:
    """Reports on the labels of examples; the figures equal scikit-learn's with `zero_division=0`.

    Args:
        probabilities: probabilities of the labels (examples, labels).
        references: which example has which label, 0 or 1 (examples, labels).
        labels: the name of each label.
        thresholds: see `evaluation.multi_label_scores`.
        texts: the examples, for the list of mistakes.
        temperature: that of the probabilities, to compare with those without it.
        abstain_below: the pipeline abstains from an example if its having, or not having, one of
            the labels is less probable.
        title: the task.

    Returns:
        The figures micro_, macro_ and weighted_ precision, recall and f1,
        mean_average_precision, exact_match, the share of examples whose labels are all right,
        calibration_error and log_loss, over all pairs of an example and a label, and with
        `abstain_below` coverage and selective_exact_match; the tables labels, missed_together,
        missed_for, mistakes, reliability, coverage and, with a temperature, temperature; the
        picture reliability.

    Raises:
        ValueError: the shapes differ, or there are no examples.

    Example:
        >>> report = multi_label_report([[0.9, 0.2], [0.4, 0.1]], [[1, 0], [1, 1]], ["joy", "awe"])
        >>> report.findings[0]
        '1 of 2 labels is never predicted: awe (1).'
    """
    scores, truth = np.asarray(probabilities, np.float64), np.asarray(references) > 0
    means = multi_label_scores(scores, truth, thresholds=thresholds)  # checks the shapes
    has = scores > np.broadcast_to(np.asarray(thresholds, np.float64), scores.shape[1:])
    counts = ClassCounts((has & truth).sum(0), has.sum(0), truth.sum(0))
    is_right = has == truth

    def confidences(temperature: float) -> Confidences:
        shares = scores
        if temperature != 1.0:
            shares = at_temperature(np.stack([1 - scores, scores], axis=-1), temperature)[..., 1]
        of_answer = np.where(has, shares, 1 - shares).ravel()
        return Confidences(of_answer, is_right.ravel(), np.where(truth, shares, 1 - shares).ravel())

    least = np.where(has, scores, 1 - scores).min(axis=1)  # (examples,)
    selection = Selection(least, is_right.all(axis=1), abstain_below, figure="exact_match")
    part = ConfidencePart(confidences, temperature, selection)
    everywhere = np.ones(len(labels), bool)
    class_means = {**counts.micro(), **counts.means(everywhere)}
    figures = {
        **class_means,
        "mean_average_precision": means["mean_average_precision"],
        "exact_match": float(is_right.all(axis=1).mean()),
        **part.figures,
    }
    return Report(
        title=f"{title}: {counted(len(truth), 'example')}, {counted(len(labels), 'label')}",
        findings=[*_findings(counts, labels, has, truth), *part.findings],
        figures=figures,
        tables={
            "labels": counts.table("label", labels, class_means, "Labels"),
            "missed_together": _pairs(
                truth & ~has, truth & ~has, labels, "Labels missed in the same example", "and"
            ),
            "missed_for": _pairs(
                truth & ~has,
                has & ~truth,
                labels,
                "Labels missed beside a wrong one",
                "instead",
            ),
            "mistakes": _mistakes(scores, truth, has, labels, texts),
            **part.tables,
        },
        drawings=part.drawings,
    )


def _findings(
    counts: ClassCounts, labels: Sequence[str], has: np.ndarray, truth: np.ndarray
) -> list[str]:
    sentence, missed = never_predicted(counts, labels, "label", "labels")
    shown = lowest(counts.f1, labels, counts.expected > 0)
    findings = [sentence if missed else f"Every label is predicted; the lowest F1: {shown}."]
    if not counts.predicted.any():
        findings = [f"No example gets a label; {sentence}"]
    absent = [name for name, count in zip(labels, counts.expected, strict=True) if not count]
    if absent:
        findings.append(f"No example of {counted(len(absent), 'label')}: {listed(absent)}.")
    findings.append(
        f"{has.sum(1).mean():.2f} labels per example are predicted, {truth.sum(1).mean():.2f} "
        "expected."
    )
    return findings


def _pairs(
    first: np.ndarray, second: np.ndarray, labels: Sequence[str], title: str, other: str
) -> ReportTable:
    """Returns the pairs of labels that are most often both marked in an example."""
    together = first.astype(np.int64).T @ second  # (labels, labels)
    if np.array_equal(first, second):
        together = np.triu(together, 1)
    order = np.argsort(-together, axis=None, kind="stable")[:_NUM_PAIRS]
    pairs = [divmod(int(i), len(labels)) for i in order]
    rows = [(labels[i], labels[j], int(together[i, j])) for i, j in pairs if together[i, j]]
    return ReportTable(title, ("missed", other, "examples"), rows)


def _mistakes(
    scores: np.ndarray,
    truth: np.ndarray,
    has: np.ndarray,
    labels: Sequence[str],
    texts: Sequence[str] | None,
) -> ReportTable:
    wrong = np.argwhere(has != truth)
    confidence = [scores[i, j] if has[i, j] else 1 - scores[i, j] for i, j in wrong]
    order = most_confident(np.array(confidence, np.float64))[:_NUM_MISTAKES]
    columns: tuple[str, ...] = ("row", "label", "mistake", "probability")
    rows = []
    for i, j in wrong[order].tolist():
        mistake = "wrong" if has[i, j] else "missed"
        text = () if texts is None else (on_one_line(texts[i]),)
        rows.append((i, labels[j], mistake, float(scores[i, j]), *text))
    if texts is not None:
        columns = (*columns, "text")
    return ReportTable("Most confident mistakes", columns, rows)
