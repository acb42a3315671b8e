"""Fits the temperature that makes a classifier's probabilities as sure as they are right.

Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 4.2.
"""

import logging
import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["at_temperature", "best_temperature", "log_loss", "softmax"]

_logger = logging.getLogger(__name__)

# Beyond these, probabilities are 0, 1 or equal for any logits that a trained head returns.
_LOWEST, _HIGHEST = 1e-3, 1e3
_STEPS = 60  # halvings of log T, to the last digits of a float


def best_temperature(logits: ArrayLike, references: ArrayLike) -> float:
    """Returns the temperature with the lowest log-loss of softmax(logits / temperature).

    The log-loss is convex in 1 / temperature, so its slope is bisected: the result depends on the
    data alone. If all answers are right, the log-loss falls with the temperature down to 0; if all
    are wrong, it falls without end as the temperature rises. Then the result is 1, and a warning
    says so. Rows with a logit that is NaN or infinite do not count.

    Args:
        logits: float (answers, classes); -inf for what is no class of a row. For independent labels
            these are rows of 0 and the label's logit, since a sigmoid is a softmax of the two.
        references: the index of each answer's right class (answers,).

    Raises:
        ValueError: the shapes do not match.

    Example:
        >>> round(best_temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1]), 4)  # 2 / log(3)
        1.8205
    """
    scores, truth = np.asarray(logits, np.float64), np.asarray(references)
    if scores.ndim != 2 or truth.shape != scores.shape[:1]:
        raise ValueError(
            f"logits of shape {scores.shape} for references of {truth.shape}: expected (answers, "
            "classes) and (answers,)"
        )
    usable = (np.isfinite(scores) | np.isneginf(scores)).all(axis=1)
    scores, truth = scores[usable], truth[usable]
    right = scores[np.arange(len(scores)), truth]
    scores, right = scores[np.isfinite(right)], right[np.isfinite(right)]
    if not len(scores):
        _logger.warning("no finite logits to fit a temperature to: it stays 1")
        return 1.0
    # Differences to the best logit change no probability, and their powers do not overflow.
    best = scores.max(axis=1, keepdims=True)
    scores, right = scores - best, right - best[:, 0]
    finite = np.where(np.isneginf(scores), 0.0, scores)

    def slope(temperature: float) -> float:
        """Returns the derivative of the log-loss with respect to 1 / temperature."""
        powers = np.exp(scores / temperature)
        expected = (powers * finite).sum(axis=1) / powers.sum(axis=1)
        return float((expected - right).mean())

    if slope(_LOWEST) <= 0 or slope(_HIGHEST) >= 0:
        _logger.warning(
            "%d of %d answers are right, and the log-loss has no minimum from temperature %g to "
            "%g: it stays 1; use more validation data",
            int((right == 0).sum()), len(right), _LOWEST, _HIGHEST,
        )  # fmt: skip
        return 1.0
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        # A positive slope in 1 / T: probabilities are too sure, so T has to rise.
        low, high = (middle, high) if slope(math.exp(middle)) > 0 else (low, middle)
    return math.exp((low + high) / 2)


def softmax(logits: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    """Returns probabilities, float64, from logits; both are of one shape (..., classes)."""
    scores = np.asarray(logits, np.float64)
    powers = np.exp((scores - scores.max(axis=-1, keepdims=True)) / temperature)
    shares: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def at_temperature(probabilities: ArrayLike, temperature: float) -> np.ndarray:
    """Returns what probabilities are if the logits are divided by another temperature.

    Args:
        probabilities: those of a softmax, in the last dimension.
        temperature: what to divide their logits by: 1 / T takes back a temperature of T.

    Example:
        >>> at_temperature([0.8, 0.2], 2.0).round(4).tolist()
        [0.6667, 0.3333]
    """
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(probabilities, np.float64))
    return softmax(logits, temperature)


def log_loss(probabilities: ArrayLike) -> float:
    """Returns the mean negative log of the probabilities of what is right, as scikit-learn does.

    Args:
        probabilities: that of each answer's right class; those below float64's epsilon count as it.

    Example:
        >>> round(log_loss([0.5, 0.25]), 4)
        1.0397
    """
    values = np.asarray(probabilities, np.float64)
    return float(-np.log(np.clip(values, np.finfo(np.float64).eps, 1.0)).mean())
