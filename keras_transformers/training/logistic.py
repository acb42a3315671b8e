"""Logistic regression on vectors, solved to the last digits: the head of few-shot training."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["logistic_regression"]

_TOLERANCE = 1e-9  # of the gradient's largest number
_STEPS, _HALVINGS = 100, 40  # a convex loss needs about 10 steps and no halving


def logistic_regression(
    vectors: ArrayLike, targets: ArrayLike, *, exclusive: bool, strength: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the dense layer with the lowest cross-entropy on vectors, with an L2 penalty.

    It minimizes sum(cross-entropy) + sum(kernel ** 2) / 2 / strength, as scikit-learn's
    `LogisticRegression(C=strength)` does, by Newton's method with conjugate gradients. The loss is
    convex, so the result depends on the data alone.

    Args:
        vectors: float (rows, width).
        targets: 0 or 1, (rows, labels): which row has which label.
        exclusive: whether each row has one label, whose logits a softmax turns into probabilities;
            otherwise each label has a logistic regression of its own, for a sigmoid. Two exclusive
            labels have one too, as in scikit-learn, of which each gets half, with opposite signs.
        strength: how little the penalty counts.

    Returns:
        The kernel (width, labels) and the bias (labels,), float64.

    Raises:
        ValueError: shapes do not match, a row has not one of several exclusive labels, a label has
            all rows or none, or `strength` is not above 0.

    Example:
        >>> kernel, bias = logistic_regression(
        ...     [[0.0], [1.0], [2.0], [3.0]], [[0], [0], [1], [1]], exclusive=False
        ... )
        >>> round(float(kernel[0, 0]), 4), round(float(bias[0]), 4)
        (0.9583, -1.4374)
    """
    rows, has = np.asarray(vectors, np.float64), np.asarray(targets, np.float64)
    if rows.ndim != 2 or has.ndim != 2 or len(rows) != len(has):
        raise ValueError(
            f"vectors of shape {rows.shape} for targets of {has.shape}: expected (rows, width) and "
            "(rows, labels)"
        )
    if not strength > 0:
        raise ValueError(f"strength={strength}: must be above 0")
    if exclusive and (has.shape[1] < 2 or (has.sum(axis=1) != 1).any()):
        raise ValueError(
            "exclusive=True: each row must have one of several labels; use exclusive=False for "
            "rows with any number of them"
        )
    counts = has.sum(axis=0)
    if constant := np.flatnonzero((counts == 0) | (counts == len(has))).tolist():
        raise ValueError(
            f"label {constant[0]} of {has.shape[1]}: {counts[constant[0]]:g} of {len(has)} rows "
            "have it; pass rows with and without it"
        )
    rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)  # the last is for the bias
    if exclusive and has.shape[1] == 2:
        weights = _minimum(rows, has[:, 1:], _sigmoid, _of_sigmoid, strength) / 2
        weights = np.concatenate([-weights, weights], axis=1)
    elif exclusive:
        weights = _minimum(rows, has, _softmax, _of_softmax, strength)
    else:
        weights = _minimum(rows, has, _sigmoid, _of_sigmoid, strength)
    return weights[:-1], weights[-1]


def _minimum(
    rows: np.ndarray,
    has: np.ndarray,
    losses: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]],
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray],
    strength: float,
) -> np.ndarray:
    """Returns the weights (width + 1, labels) with the lowest loss."""
    penalty = np.full((rows.shape[1], 1), 1 / strength)
    penalty[-1] = 0  # the bias is free
    weights = np.zeros((rows.shape[1], has.shape[1]))

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, probabilities = losses(rows @ weights, has)
        return value + float((penalty * weights**2).sum()) / 2, probabilities

    value, probabilities = loss(weights)
    for _ in range(_STEPS):
        gradient = rows.T @ (probabilities - has) + penalty * weights
        if np.abs(gradient).max() < _TOLERANCE:
            break

        def curved(step: np.ndarray, probabilities: np.ndarray = probabilities) -> np.ndarray:
            product: np.ndarray = rows.T @ curvature(probabilities, rows @ step) + penalty * step
            return product

        step = _solved(curved, -gradient)
        for _ in range(_HALVINGS):
            lower, others = loss(weights + step)
            if lower <= value:
                break
            step /= 2
        else:
            break  # no lower value in float64
        weights, value, probabilities = weights + step, lower, others
    return weights


def _solved(product: Callable[[np.ndarray], np.ndarray], right: np.ndarray) -> np.ndarray:
    """Solves `product(x) = right` for a positive semidefinite linear function.

    The smaller `right` is, the more digits the solution has, as quadratic convergence needs.
    """
    x, residual = np.zeros_like(right), right.copy()
    direction, size = residual.copy(), float((residual**2).sum())
    last = size * min(1e-2, size)
    for _ in range(right.size):
        if size <= last:
            break
        image = product(direction)
        step = size / float((direction * image).sum())
        x += step * direction
        residual -= step * image
        previous, size = size, float((residual**2).sum())
        direction = residual + size / previous * direction
    return x


def _sigmoid(logits: np.ndarray, has: np.ndarray) -> tuple[float, np.ndarray]:
    loss = np.logaddexp(0, logits) - has * logits
    return float(loss.sum()), np.exp(-np.logaddexp(0, -logits))


def _of_sigmoid(probabilities: np.ndarray, change: np.ndarray) -> np.ndarray:
    return probabilities * (1 - probabilities) * change


def _softmax(logits: np.ndarray, has: np.ndarray) -> tuple[float, np.ndarray]:
    total = np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return float((total - (has * logits).sum(axis=1, keepdims=True)).sum()), np.exp(logits - total)


def _of_softmax(probabilities: np.ndarray, change: np.ndarray) -> np.ndarray:
    return probabilities * (change - (probabilities * change).sum(axis=1, keepdims=True))
