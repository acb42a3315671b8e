"""Scores several labels per text: F1 over all labels, per label, and average precision."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["best_thresholds", "multi_label_scores"]


def multi_label_scores(
    probabilities: ArrayLike, references: ArrayLike, *, thresholds: float | Sequence[float] = 0.5
) -> dict[str, float]:
    """Returns micro_f1, macro_f1 and mean_average_precision, 0 to 1; equal to scikit-learn's.

    Labels that no text has do not count in the mean of average precisions; in macro_f1 they count
    as 0, as in scikit-learn with `zero_division=0`, unless they are never predicted.

    Args:
        probabilities: probabilities of the labels (texts, labels).
        references: which text has which label, 0 or 1 (texts, labels).
        thresholds: the probability above which a text has a label: one for all, or one per label.

    Raises:
        ValueError: the shapes differ, or there are no texts.

    Example:
        >>> multi_label_scores([[0.9, 0.2], [0.4, 0.7]], [[1, 0], [1, 1]])
        {'micro_f1': 0.8, 'macro_f1': 0.8333333333333333, 'mean_average_precision': 1.0}
    """
    scores, truth = _checked(probabilities, references)
    has = scores > np.broadcast_to(np.asarray(thresholds, np.float64), scores.shape[1:])
    hits = (has & truth).sum(axis=0)
    given_or_right = has.sum(axis=0) + truth.sum(axis=0)
    total = given_or_right.sum()
    return {
        "micro_f1": float(2 * hits.sum() / total) if total else 0.0,
        "macro_f1": float(np.mean(2 * hits / np.maximum(given_or_right, 1))),
        "mean_average_precision": _mean_average_precision(scores, truth),
    }


def best_thresholds(probabilities: ArrayLike, references: ArrayLike) -> list[float]:
    """Returns for each label the threshold with the highest F1, halfway between two probabilities.

    Choose thresholds on validation data: on test data the scores would be too good. Labels that no
    text has get 0.5.

    Args:
        probabilities: see `multi_label_scores`.
        references: see `multi_label_scores`.

    Raises:
        ValueError: see `multi_label_scores`.

    Example:
        >>> best_thresholds([[0.1], [0.2], [0.4]], [[0], [1], [1]])
        [0.15000000000000002]
    """
    scores, truth = _checked(probabilities, references)
    return [_best(scores[:, label], truth[:, label]) for label in range(scores.shape[1])]


def _best(scores: np.ndarray, truth: np.ndarray) -> float:
    if not truth.any():
        return 0.5
    order = np.argsort(-scores, kind="stable")
    ranked, right = scores[order], truth[order]
    hits = np.cumsum(right)
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + truth.sum())
    is_end = np.append(ranked[:-1] > ranked[1:], True)  # equal scores are accepted together
    last = int(np.argmax(np.where(is_end, f1, -1)))
    lower = ranked[last + 1] if last + 1 < len(ranked) else 0.0
    return float((ranked[last] + lower) / 2)


def _mean_average_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    precisions = [
        _average_precision(scores[:, label], truth[:, label])
        for label in range(scores.shape[1])
        if truth[:, label].any()
    ]
    return float(np.mean(precisions)) if precisions else 0.0


def _average_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    """Returns the sum of precisions, weighted by the recall that each rank adds."""
    order = np.argsort(-scores, kind="stable")
    ranked, right = scores[order], truth[order]
    is_end = np.append(ranked[:-1] > ranked[1:], True)
    hits = np.cumsum(right)[is_end]
    precision = hits / (np.flatnonzero(is_end) + 1)
    recall = hits / truth.sum()
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def _checked(probabilities: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    scores, truth = np.asarray(probabilities, np.float64), np.asarray(references)
    if scores.shape != truth.shape or scores.ndim != 2 or not len(scores):
        raise ValueError(
            f"probabilities of shape {scores.shape}, references of {truth.shape}: expected the "
            "same (texts, labels), with at least one text"
        )
    return scores, truth > 0
