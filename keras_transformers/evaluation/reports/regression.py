"""Reports on predicted numbers: the error by range."""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.evaluation.reports.report import Report, ReportTable, counted, on_one_line

__all__ = ["regression_report"]

# The figures -> whether higher is better.
REGRESSION_FIGURES = MappingProxyType(
    {
        "mean_absolute_error": False,
        "root_mean_squared_error": False,
        "median_absolute_error": False,
        "r2": True,
    }
)
_NUM_RANGES = 5
_NUM_MISTAKES = 10
_NARROW = 0.5  # a spread of the answers, as a share of the expected one, worth a sentence


def regression_report(
    predictions: ArrayLike,
    references: ArrayLike,
    *,
    texts: Sequence[str] | None = None,
    title: str = "regression",
) -> Report:
    """Reports on predicted numbers, in the units of the references.

    Args:
        predictions: the answers (examples,).
        references: the expected numbers (examples,).
        texts: the examples, for the list of mistakes.
        title: the task.

    Returns:
        The figures mean_absolute_error, root_mean_squared_error, median_absolute_error, r2, the
        share of the variance that the answers explain, and bias, the mean of answer - reference;
        the tables ranges, which has the errors by fifths of the references, and mistakes.

    Raises:
        ValueError: the shapes differ, or there are no examples.

    Example:
        >>> regression_report([1.0, 3.0], [1.0, 5.0]).figures["mean_absolute_error"]
        1.0
    """
    answers = np.asarray(predictions, np.float64)
    truth = np.asarray(references, np.float64)
    if answers.shape != truth.shape or truth.ndim != 1 or not len(truth):
        raise ValueError(
            f"predictions of shape {answers.shape} for references of {truth.shape}: expected the "
            "same (examples,), with at least one example"
        )
    errors = answers - truth
    variance = float(np.var(truth))
    figures = {
        "mean_absolute_error": float(np.abs(errors).mean()),
        "root_mean_squared_error": float(np.sqrt(np.mean(errors**2))),
        "median_absolute_error": float(np.median(np.abs(errors))),
        "r2": 1 - float(np.mean(errors**2)) / variance if variance else float("nan"),
        "bias": float(errors.mean()),
    }
    return Report(
        title=f"{title}: {counted(len(truth), 'example')}, from {truth.min():g} to {truth.max():g}",
        findings=_findings(answers, truth, figures),
        figures=figures,
        tables={"ranges": _ranges(answers, truth), "mistakes": _mistakes(answers, truth, texts)},
    )


def _findings(answers: np.ndarray, truth: np.ndarray, figures: dict[str, float]) -> list[str]:
    mean_error = float(np.abs(truth - truth.mean()).mean())
    better = "below" if figures["mean_absolute_error"] < mean_error else "not below"
    findings = [
        f"The mean absolute error {figures['mean_absolute_error']:.4f} is {better} "
        f"{mean_error:.4f}, that of always answering the mean, {truth.mean():.4f}."
    ]
    if np.std(answers) < _NARROW * np.std(truth):
        findings.append(
            f"The answers vary less than the expected numbers: from {answers.min():.4f} to "
            f"{answers.max():.4f}, with a standard deviation of {np.std(answers):.4f} instead of "
            f"{np.std(truth):.4f}."
        )
    return findings


def _ranges(answers: np.ndarray, truth: np.ndarray) -> ReportTable:
    """Returns the errors by fifths of the references; equal references share a range."""
    bounds = np.unique(np.quantile(truth, np.linspace(0, 1, _NUM_RANGES + 1)))
    index = np.clip(np.searchsorted(bounds, truth, side="right") - 1, 0, max(len(bounds) - 2, 0))
    errors = answers - truth
    rows = []
    for i in np.unique(index).tolist():
        chosen = index == i
        rows.append(
            (
                f"{truth[chosen].min():g} to {truth[chosen].max():g}",
                int(chosen.sum()),
                float(truth[chosen].mean()),
                float(answers[chosen].mean()),
                float(np.abs(errors[chosen]).mean()),
                float(errors[chosen].mean()),
            )
        )
    columns = ("range", "count", "mean expected", "mean answer", "mean absolute error", "bias")
    return ReportTable("Errors by range of the expected number", columns, rows)


def _mistakes(answers: np.ndarray, truth: np.ndarray, texts: Sequence[str] | None) -> ReportTable:
    order = np.argsort(-np.abs(answers - truth), kind="stable")[:_NUM_MISTAKES].tolist()
    columns: tuple[str, ...] = ("row", "expected", "answer", "error")
    rows = []
    for i in order:
        text = () if texts is None else (on_one_line(texts[i]),)
        error = float(answers[i] - truth[i])
        rows.append((i, float(truth[i]), float(answers[i]), error, *text))
    return ReportTable("Largest errors", columns if texts is None else (*columns, "text"), rows)
