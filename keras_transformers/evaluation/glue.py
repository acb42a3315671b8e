"""Computes the GLUE metrics: accuracy, F1, and Matthews, Pearson and Spearman correlation.

Wang et al. 2018, arXiv:1804.07461. Results equal those of scikit-learn and SciPy; Pearson and
Spearman need SciPy (the extra `evaluation`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.dependencies.extras import optional

__all__ = ["glue_scores"]

MetricName = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """Returns the share of correct labels, 0 to 1.

    Args:
        predictions: label ids (n,).
        references: label ids (n,).
    """
    predictions, references = _checked(predictions, references)
    return float(np.mean(predictions == references))


def f1(predictions: ArrayLike, references: ArrayLike) -> float:
    """Returns the F1 of label 1 among labels 0 and 1; 0 if label 1 never occurs.

    Args:
        predictions: label ids (n,).
        references: label ids (n,).

    Raises:
        ValueError: a label is neither 0 nor 1.
    """
    predictions, references = _checked(predictions, references)
    others = np.setdiff1d(np.union1d(predictions, references), [0, 1])
    if len(others):
        raise ValueError(f"labels {others.tolist()}: F1 needs labels 0 and 1")
    num_positive = np.sum(predictions == 1) + np.sum(references == 1)
    num_correct = np.sum((predictions == 1) & (references == 1))
    return float(2 * num_correct / num_positive) if num_positive else 0.0


def matthews(predictions: ArrayLike, references: ArrayLike) -> float:
    """Returns the Matthews correlation of two or more classes, -1 to 1 (Gorodkin 2004).

    Returns 0 if it is undefined, because all predictions or all references have the same label.

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


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Returns the Pearson correlation, -1 to 1; NaN if either side is constant.

    Args:
        predictions: scores (n,).
        references: scores (n,).

    Raises:
        ModuleNotFoundError: SciPy is not installed.
        ValueError: there are fewer than two scores.
    """
    return _correlation("pearsonr", predictions, references)


def spearman(predictions: ArrayLike, references: ArrayLike) -> float:
    """Returns the Spearman rank correlation, -1 to 1; NaN if either side is constant.

    Equal scores get the mean of their ranks.

    Args:
        predictions: scores (n,).
        references: scores (n,).

    Raises:
        ModuleNotFoundError: SciPy is not installed.
        ValueError: there are fewer than two scores.
    """
    return _correlation("spearmanr", predictions, references)


METRICS: dict[MetricName, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def glue_scores(
    metrics: Sequence[MetricName], predictions: ArrayLike, references: ArrayLike
) -> dict[str, float]:
    """Computes the metrics of a task.

    >>> glue_scores(["accuracy", "f1"], [1, 1, 0], [1, 0, 0])["accuracy"].__round__(4)
    0.6667

    Args:
        metrics: names of metrics, such as `data.text.GlueTask.metrics`.
        predictions: label ids or scores (n,).
        references: label ids or scores (n,).

    Returns:
        Metric -> value, in the order of `metrics`.

    Raises:
        ModuleNotFoundError: a metric needs SciPy, which is not installed.
        ValueError: a name is unknown, or predictions or references are empty, differ in number,
            are not one-dimensional or not finite.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"unknown metrics {unknown}; expected some of {list(METRICS)}")
    return {name: METRICS[name](predictions, references) for name in metrics}


def _correlation(function: str, predictions: ArrayLike, references: ArrayLike) -> float:
    predictions, references = _checked(predictions, references)
    if len(references) < 2:
        raise ValueError("a correlation needs at least two scores, but there is only 1")
    x, y = (side.astype(np.float64) for side in (predictions, references))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")  # like SciPy, but without its warning
    correlate = getattr(optional("scipy.stats", extra="evaluation"), function)
    return float(correlate(x, y).statistic)


def _checked(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    predictions, references = np.asarray(predictions), np.asarray(references)
    if predictions.shape != references.shape or references.ndim != 1 or not len(references):
        raise ValueError(
            f"predictions of shape {predictions.shape} for references of shape "
            f"{references.shape}: both must be (n,), with n at least 1"
        )
    for name, values in (("predictions", predictions), ("references", references)):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{name} of type {values.dtype}: pass numbers; for labels, their ids")
        if not np.isfinite(values).all():
            raise ValueError(f"NaN or infinity among the {name}; has training diverged?")
    return predictions, references
