"""Finds out how far rounding moves an export's answers, so that its check holds on any processor.

Kernels of another processor add in another order. What they compute is the exact result for weights
that differ in their last places (Higham 2002, Accuracy and Stability of Numerical Algorithms,
chapter 3), so the answers with such weights show how far apart two processors may be.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.saved_model.checks.check import largest_values
from keras_transformers.saved_model.examples import Arrays, level, num_rows, stored_examples

__all__: list[str] = []

MOST = 0.05  # the check must tell a wrong export from rounding

_MOVE = 2.0**-22  # of a weight: 2 to 4 units in its last place
_TIMES = 4.0  # the moved weights are one sample of many


def moved(weight: Tensor, index: int, direction: Literal[1, -1]) -> Tensor:
    """Returns a weight of which each number is moved up or down in its last places.

    Args:
        weight: a float tensor.
        index: chooses which numbers go up, the same ones every time.
        direction: -1 moves down those that 1 moves up: an answer whose score lies at a threshold
            changes in one of the two directions.
    """
    draws = tf.random.stateless_uniform(weight.shape, (0, index), -1.0, 1.0)
    return weight * tf.cast(1.0 + direction * _MOVE * tf.sign(draws), weight.dtype)


def tolerance(described: Mapping[str, Any], of_moved: Sequence[Mapping[str, Any]]) -> float:
    """Returns how far other processors' answers may be, as a share of each output's largest value.

    Args:
        described: signatures as in the metadata.
        of_moved: the same, answered with weights moved in each direction.
    """
    shares = [0.0]
    for name in described:
        largest = largest_values(
            e["outputs"] for e in stored_examples({"signatures": described}, name)
        )
        for one, two in _pairs(name, described, of_moved):
            outputs, others = level(one["outputs"], two["outputs"])
            for key, size in largest.items():
                with np.errstate(invalid="ignore"):  # inf - inf
                    error = np.abs(np.float64(outputs[key]) - others[key])
                shares.append(error.max(initial=0.0, where=np.isfinite(error)) / (size or 1.0))
    return _TIMES * float(max(shares))


def decided(
    described: Mapping[str, Any], of_moved: Sequence[Mapping[str, Any]]
) -> dict[str, list[np.ndarray]]:
    """Returns which rows of the examples have texts and integers that rounding does not change.

    Args:
        described: signatures as in the metadata.
        of_moved: the same, answered with weights moved in each direction.

    Returns:
        Signature -> bool (rows,) for each example.
    """
    rows: dict[str, list[np.ndarray]] = {}
    for name, signature in described.items():
        same = [_same(one, two) for one, two in _pairs(name, described, of_moved)]
        count = len(signature["examples"])
        rows[name] = [np.all(same[index::count], axis=0) for index in range(count)]
    return rows


def _pairs(
    name: str, described: Mapping[str, Any], of_moved: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Any, Any]]:
    """Yields a signature's examples and the same ones of moved weights, direction by direction."""
    for signatures in of_moved:
        sides = (stored_examples({"signatures": side}, name) for side in (described, signatures))
        yield from zip(*sides, strict=True)


def _same(one: Mapping[str, Arrays], two: Mapping[str, Arrays]) -> np.ndarray:
    same = np.ones(num_rows(one["inputs"]), bool)
    outputs, others = level(one["outputs"], two["outputs"])
    for key, value in outputs.items():
        if value.dtype.kind != "f" and len(value) == len(same) > 0:
            same &= (value == others[key]).reshape(len(same), -1).all(axis=1)
    return same
