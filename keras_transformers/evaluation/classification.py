"""The metrics of GLUE: accuracy, F1, Matthews, Pearson and Spearman correlation.

Wang et al. 2018, arXiv:1804.07461. Equal to scikit-learn's and SciPy's, which are not needed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

MetricName = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]


def accuracy(predictions: Any, references: Any) -> float:
    """Share of equal labels, 0 to 1.

    Args:
        predictions: label ids (n,).
        references: label ids (n,).
    """
    predictions, references = _checked(predictions, references)
    return float(np.mean(predictions == references))


def f1(predictions: Any, references: Any) -> float:
    """F1 of label 1 among labels 0 and 1; 0 where it is neither predicted nor there.

    Args:
        predictions: label ids (n,).
        references: label ids (n,).

    Raises:
        ValueError: a label is not 0 or 1.
    """
    predictions, references = _checked(predictions, references)
    others = np.setdiff1d(np.union1d(predictions, references), [0, 1])
    if len(others):
        raise ValueError(f"labels {others.tolist()}: F1 is that of label 1 against label 0")
    num_positive = np.sum(predictions == 1) + np.sum(references == 1)
    num_correct = np.sum((predictions == 1) & (references == 1))
    return float(2 * num_correct / num_positive) if num_positive else 0.0


def matthews(predictions: Any, references: Any) -> float:
    """Matthews' correlation coefficient, -1 to 1, of two or more classes (Gorodkin 2004).

    0 where it is not defined: all labels predicted, or all there, are the same.

    Args:
        predictions: label ids (n,).
        references: label ids (n,).
    """
    predictions, references = _checked(predictions, references)
    classes = np.union1d(predictions, references)
    predicted = (predictions[:, None] == classes).astype(np.float64)  # (n, classes)
    expected = (references[:, None] == classes).astype(np.float64)
    predicted -= predicted.mean(axis=0)
    expected -= expected.mean(axis=0)
    spread = np.sum(predicted**2) * np.sum(expected**2)
    return float(np.sum(predicted * expected) / np.sqrt(spread)) if spread else 0.0


def pearson(predictions: Any, references: Any) -> float:
    """Pearson's correlation, -1 to 1; NaN where one side is constant.

    Args:
        predictions: scores (n,).
        references: scores (n,).

    Raises:
        ValueError: fewer than two scores.
    """
    predictions, references = _checked(predictions, references)
    if len(references) < 2:
        raise ValueError("a correlation needs two scores or more, there is 1")
    x, y = (side.astype(np.float64) for side in (predictions, references))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    # Scaled first: the squares of large or small numbers have no room in a float.
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    correlation = np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.clip(correlation, -1, 1))


def spearman(predictions: Any, references: Any) -> float:
    """Spearman's rank correlation, -1 to 1; equal scores share the mean of their ranks.

    NaN where one side is constant.

    Args:
        predictions: scores (n,).
        references: scores (n,).

    Raises:
        ValueError: fewer than two scores.
    """
    predictions, references = _checked(predictions, references)
    return pearson(_ranks(predictions), _ranks(references))


METRICS: dict[MetricName, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def scores(
    metrics: Sequence[MetricName], predictions: Any, references: Any
) -> dict[MetricName, float]:
    """Metric -> its value, in the order of `metrics`; `glue.Task.metrics` are such names.

    >>> scores(["accuracy", "f1"], [1, 1, 0], [1, 0, 0])["accuracy"].__round__(4)
    0.6667

    Args:
        metrics: names.
        predictions: label ids, or scores (n,).
        references: likewise.

    Raises:
        ValueError: an unknown name; no predictions, other numbers of them, not one dimension, or
            NaN among them.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"unknown metrics {unknown}, there are {list(METRICS)}")
    return {name: METRICS[name](predictions, references) for name in metrics}


def _checked(predictions: Any, references: Any) -> tuple[np.ndarray, np.ndarray]:
    predictions, references = np.asarray(predictions), np.asarray(references)
    if predictions.shape != references.shape or references.ndim != 1 or not len(references):
        raise ValueError(
            f"predictions of shape {predictions.shape} for references of shape "
            f"{references.shape}: expected (n,) both, n at least 1"
        )
    for name, values in (("predictions", predictions), ("references", references)):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{name} of type {values.dtype}: expected numbers; labels as ids")
        if not np.isfinite(values).all():
            raise ValueError(f"NaN or infinite among the {name}; has training diverged?")
    return predictions, references


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 1, of equal values the mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
