"""Weighs classes and examples in the loss, for data in which some of them are rare or doubtful."""

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

__all__ = ["ClassWeighting"]

_LARGEST = 1e30  # sums of more are infinite in float32

ClassWeight = Mapping[str, float] | Literal["balanced"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassWeighting:
    """The option that weighs classes in the loss."""

    # balanced: each class weighs the same in total; or the weight of some labels, 1 for the others
    class_weight: dict[str, float] | Literal["balanced"] | None = None


def class_weights(class_weight: ClassWeight, counts: Mapping[str, int]) -> np.ndarray:
    """Returns the weight of each class, float32 (classes,), in the order of `counts`.

    "balanced" is scikit-learn's n / (k * count) for n examples of k classes, where k counts the
    classes that occur. The mean weight of an example is then 1.

    Args:
        class_weight: "balanced", or label -> weight; other labels weigh 1.
        counts: each label -> its number of examples, or of words.

    Raises:
        TypeError: `class_weight` is something else.
        ValueError: a label is unknown; a weight is negative, infinite or no number; or no example
            has a weight above 0.

    Example:
        >>> class_weights("balanced", {"no": 3, "yes": 1}).tolist()
        [0.6666666865348816, 2.0]
        >>> class_weights({"yes": 3}, {"no": 3, "yes": 1}).tolist()
        [1.0, 3.0]
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        return balanced(list(counts.values()))
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            f"class_weight={class_weight!r:.80}: pass 'balanced', or a mapping from labels to "
            "weights"
        )
    labels = list(counts)
    for label, weight in class_weight.items():
        if label not in counts:
            raise ValueError(f"class_weight has the key {label!r}{_remedy(label, labels)}")
        if not _is_weight(weight):
            raise ValueError(
                f"class_weight[{label!r}] is {weight!r:.60}: pass a number from 0 to 1e30"
            )
    weights = np.array([float(class_weight.get(label, 1.0)) for label in labels], np.float32)
    if not np.dot(weights, list(counts.values())) > 0:
        raise ValueError(
            f"class_weight={dict(class_weight)} leaves no example with a weight above 0: pass a "
            "weight above 0 for a label that occurs"
        )
    return weights


def balanced(counts: Sequence[int]) -> np.ndarray:
    """Returns n / (k * count) for each class, float32 (classes,); 1 for one without examples."""
    numbers = np.array(counts, np.float64)
    occurs = numbers > 0
    weights = np.ones(len(numbers))
    weights[occurs] = numbers.sum() / (occurs.sum() * numbers[occurs])
    return weights.astype(np.float32)


def row_weight(value: Any) -> float:
    """Returns the weight of an example as a number.

    Args:
        value: a number, or its text in a file.

    Raises:
        ValueError: it is negative, infinite or no number.
    """
    number = _number(value)
    if not _is_weight(number):
        raise ValueError(
            f"weight is {value!r:.60}, expected a number from 0 to 1e30; if the column is no "
            "weight of examples, rename it"
        )
    return number


def check_weights(weights: Sequence[float], source: str) -> None:
    """Raises ValueError if all weights are 0."""
    if not any(weights):
        raise ValueError(
            f"{source}: all {len(weights)} weights are 0, so there is nothing to learn: pass a "
            "weight above 0 for some rows, or leave the column out"
        )


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _is_weight(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return is_number and 0 <= value <= _LARGEST


def _remedy(label: Any, labels: Sequence[str]) -> str:
    """Returns what to do about a key of `class_weight` that is no label."""
    shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
    if isinstance(label, int) and 0 <= label < len(labels):
        return f": pass the name of that label, {labels[label]!r}; the labels are {shown}"
    near = difflib.get_close_matches(str(label), labels, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f", which is no label{hint}: the labels are {shown}"
