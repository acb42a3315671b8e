"""Reports on classification: one of several classes per example."""

import functools
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.evaluation.reports.calibration import (
    ConfidencePart,
    Confidences,
    Selection,
)
from keras_transformers.evaluation.reports.counts import MEANS, ClassCounts, lowest
from keras_transformers.evaluation.reports.pictures import confusion_picture
from keras_transformers.evaluation.reports.report import (
    Report,
    ReportTable,
    counted,
    listed,
    on_one_line,
    printable,
)
from keras_transformers.evaluation.temperature import at_temperature

__all__ = ["classification_report"]

# The figures -> whether higher is better.
CLASSIFICATION_FIGURES = MappingProxyType(
    {
        "accuracy": True,
        "balanced_accuracy": True,
        **dict.fromkeys(MEANS, True),
        "calibration_error": False,
        "log_loss": False,
    }
)
_NUM_MISTAKES = 10
_NUM_CONFUSIONS = 10


def classification_report(
    probabilities: ArrayLike,
    references: ArrayLike,
    labels: Sequence[str],
    *,
    texts: Sequence[str] | None = None,
    temperature: float = 1.0,
    abstain_below: float | None = None,
    title: str = "classification",
) -> Report:
    """Reports on the classes of examples.

    Precision, recall, F1 (with `zero_division=0`) and log-loss equal scikit-learn's. Classes that
    are neither expected nor predicted do not count in the macro means; those without an example do
    not count in the balanced accuracy, the mean recall.

    Args:
        probabilities: probabilities of the classes (examples, classes).
        references: the index of each example's class (examples,).
        labels: the name of each class.
        texts: the examples, for the list of mistakes.
        temperature: that of the probabilities, to compare with those without it.
        abstain_below: the probability below which the pipeline abstains.
        title: the task.

    Returns:
        The figures accuracy, balanced_accuracy, calibration_error, log_loss, macro_ and weighted_
        precision, recall and f1, and with `abstain_below` coverage and selective_accuracy; the
        tables classes, confusions, mistakes, reliability, coverage, confusion and, with a
        temperature, temperature; the pictures confusion and reliability.

    Raises:
        ValueError: the shapes do not match, there are no examples, or a class has no name.

    Example:
        >>> report = classification_report([[0.8, 0.2], [0.7, 0.3]], [0, 1], ["bad", "good"])
        >>> report.findings[0]
        'All 2 answers are "bad"; 1 of 2 classes is never predicted: good (1).'
    """
    scores, truth = np.asarray(probabilities, np.float64), np.asarray(references)
    if scores.shape != (len(truth), len(labels)) or not len(truth):
        raise ValueError(
            f"probabilities of shape {scores.shape} for {len(truth)} references and {len(labels)} "
            "labels: expected (examples, classes), with at least one example"
        )
    if truth.min() < 0 or truth.max() >= len(labels):
        raise ValueError(f"references from {truth.min()} to {truth.max()} for {len(labels)} labels")
    labels = [printable(label) for label in labels]
    guesses = scores.argmax(axis=1)
    matrix = confusion_matrix(truth, guesses, len(labels))
    counts = ClassCounts(np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1))
    is_right = guesses == truth
    confidence = scores[np.arange(len(scores)), guesses]

    def confidences(temperature: float) -> Confidences:
        shares = at_temperature(scores, temperature) if temperature != 1.0 else scores
        return Confidences(shares.max(axis=1), is_right, shares[np.arange(len(shares)), truth])

    selection = Selection(confidence, is_right, abstain_below)
    part = ConfidencePart(confidences, temperature, selection)
    means = counts.means()
    has_examples = counts.expected > 0
    figures = {
        "accuracy": float(is_right.mean()),
        "balanced_accuracy": float(counts.recall[has_examples].mean()),
        **means,
        **part.figures,
    }
    findings = [
        *_never_predicted(counts, labels),
        *_against_majority(counts, labels, figures),
        *_without_examples(counts, labels),
        *_not_finite(scores),
        *part.findings,
    ]
    tables = {
        "classes": counts.table("class", labels, means, "Classes"),
        "confusions": _confusions(matrix, labels),
        "mistakes": _mistakes(confidence, truth, guesses, labels, texts),
        **part.tables,
        "confusion": ReportTable(
            "Confusion matrix (rows: expected, columns: predicted)",
            ("expected", *labels),
            [(name, *row) for name, row in zip(labels, matrix.tolist(), strict=True)],
        ),
    }
    return Report(
        title=(
            f"{title}: {counted(len(truth), 'example')}, {counted(len(labels), 'class', 'classes')}"
        ),
        findings=findings,
        figures=figures,
        tables=tables,
        drawings={
            "confusion": functools.partial(confusion_picture, matrix, labels),
            **part.drawings,
        },
    )


def confusion_matrix(references: np.ndarray, guesses: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts how often each class (row) was answered with each class (column)."""
    pairs = references.astype(np.int64) * num_classes + guesses
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def most_confident(confidence: np.ndarray) -> np.ndarray:
    """Returns the order from the highest confidence; equal ones, but for rounding, keep theirs."""
    return np.argsort(-np.round(confidence, 6), kind="stable")


def never_predicted(
    counts: ClassCounts, names: Sequence[str], noun: str, plural: str
) -> tuple[str, list[int]]:
    """Returns a sentence's end on expected classes that are never predicted, and which they are."""
    missed = [i for i in np.argsort(-counts.expected, kind="stable") if counts.expected[i]]
    missed = [int(i) for i in missed if not counts.predicted[i]]
    shown = listed([f"{names[i]} ({counts.expected[i]})" for i in missed])
    verb = "is" if len(missed) == 1 else "are"
    return (
        f"{len(missed)} of {counted(len(names), noun, plural)} {verb} never predicted: {shown}.",
        missed,
    )


def _never_predicted(counts: ClassCounts, labels: Sequence[str]) -> list[str]:
    sentence, missed = never_predicted(counts, labels, "class", "classes")
    answers = np.flatnonzero(counts.predicted)
    total = int(counts.predicted.sum())
    if not missed:
        shown = lowest(counts.f1, labels, counts.expected > 0)
        return [f"Every class with examples is predicted; the lowest F1: {shown}."]
    if len(answers) == 1:
        return [f'All {total} answers are "{labels[answers[0]]}"; {sentence}']
    return [sentence]


def _against_majority(
    counts: ClassCounts, labels: Sequence[str], figures: dict[str, float]
) -> list[str]:
    most = int(counts.expected.argmax())
    majority = counts.expected[most] / counts.expected.sum()
    verb = "is above" if figures["accuracy"] > majority else "is not above"
    return [
        f"Accuracy {figures['accuracy']:.4f} {verb} {majority:.4f}, that of always answering "
        f'"{labels[most]}"; balanced accuracy {figures["balanced_accuracy"]:.4f}, macro F1 '
        f"{figures['macro_f1']:.4f}."
    ]


def _without_examples(counts: ClassCounts, labels: Sequence[str]) -> list[str]:
    absent = [name for name, count in zip(labels, counts.expected, strict=True) if not count]
    if not absent:
        return []
    return [f"No example of {counted(len(absent), 'class', 'classes')}: {listed(absent)}."]


def _not_finite(scores: np.ndarray) -> list[str]:
    count = int((~np.isfinite(scores)).any(axis=1).sum())
    if not count:
        return []
    return [
        f"The probabilities of {counted(count, 'example')} are not numbers: has training diverged?"
    ]


def _confusions(matrix: np.ndarray, labels: Sequence[str]) -> ReportTable:
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_NUM_CONFUSIONS]
    pairs = [divmod(int(i), len(labels)) for i in order]
    rows = [
        (labels[i], labels[j], int(wrong[i, j]), float(wrong[i, j] / matrix[i].sum()))
        for i, j in pairs
        if wrong[i, j]
    ]
    return ReportTable(
        "Most frequent confusions", ("expected", "predicted", "count", "share of expected"), rows
    )


def _mistakes(
    confidence: np.ndarray,
    references: np.ndarray,
    guesses: np.ndarray,
    labels: Sequence[str],
    texts: Sequence[str] | None,
) -> ReportTable:
    wrong = np.flatnonzero(references != guesses)
    order = wrong[most_confident(confidence[wrong])][:_NUM_MISTAKES].tolist()
    columns: tuple[str, ...] = ("row", "expected", "predicted", "probability")
    rows = [(i, labels[references[i]], labels[guesses[i]], float(confidence[i])) for i in order]
    if texts is None:
        return ReportTable("Most confident mistakes", columns, rows)
    with_texts = [(*row, on_one_line(texts[row[0]])) for row in rows]
    return ReportTable("Most confident mistakes", (*columns, "text"), with_texts)
