"""Finds out how far rounding moves an export's answers, so that its check holds on any processor.

Kernels of another processor add in another order. What they compute is the exact result for weights
that differ in their last places (Higham 2002, Accuracy and Stability of Numerical Algorithms,
chapter 3), so the answers with such weights show how far apart two processors may be.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.saved_model.checks.check import largest_values
from keras_transformers.saved_model.examples import Arrays, level, num_rows, stored_examples

__all__: list[str] = []

MOST = 0.05  # the check must tell a wrong export from rounding

_MOVE = 2.0**-22  # of a weight: 2 to 4 units in its last place
_TIMES = 4.0  # the moved weights are one sample of many


class MovableWeights:
    """Holds a copy of a model's weights, and makes functions read it.

    Args:
        variables: the model's.
        stored: returns the value of a weight as the export stores it.
    """

    def __init__(
        self, variables: Iterable[keras.Variable], stored: Callable[[keras.Variable], Tensor]
    ) -> None:
        floats = [x for x in variables if tf.as_dtype(x.dtype).is_floating]
        self._stored = stored
        self._copies = [(x, tf.Variable(stored(x), trainable=False)) for x in floats]

    def move(self, direction: Literal[1, 0, -1]) -> None:
        """Moves each number up or down in its last places, or back; see `moved`."""
        for index, (variable, copy) in enumerate(self._copies):
            copy.assign(moved(self._stored(variable), index, direction))

    def reading(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with these weights instead of the model's."""

        @functools.wraps(function)
        def read(*args: Any, **inputs: Any) -> Any:
            with keras.StatelessScope(state_mapping=self._copies):
                return function(*args, **inputs)

        return read

    def free(self) -> None:
        """Frees the copy, which the graphs that read it would hold until they are collected."""
        for _, copy in self._copies:
            tf.raw_ops.DestroyResourceOp(resource=copy.handle)


def moved(weight: Tensor, index: int, direction: Literal[1, 0, -1]) -> Tensor:
    """Returns a weight of which each number is moved up or down in its last places.

    Args:
        weight: a float tensor.
        index: chooses which numbers go up, the same ones every time.
        direction: -1 moves down those that 1 moves up: an answer whose score lies at a threshold
            changes in one of the two directions. 0 moves nothing.
    """
    count = math.prod(weight.shape)
    bits = np.frombuffer(np.random.default_rng(index).bytes(-(-count // 8)), np.uint8)
    goes_up = np.unpackbits(bits, count=count).reshape(weight.shape)
    move = direction * _MOVE
    factors = np.array([1.0 - move, 1.0 + move], weight.dtype.as_numpy_dtype)
    return weight * factors[goes_up]


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
