"""Defines the answer of zero-shot classification: one of the labels of a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["ZeroShotLabel"]


@dataclass(frozen=True)
class ZeroShotLabel(Result):
    """How well labels of a request describe a text.

    Attributes:
        label: the likeliest label; "" without labels.
        probabilities: one per label, in the order given. They add up to 1, unless several labels
            may be true at once.
        label_index: the index of `label`; -1 without labels.
    """

    label: str
    probabilities: Sequence[float]
    label_index: int


ANSWER = AnswerType(
    "zero_shot_classification",
    ZeroShotLabel,
    inputs=(("text", "labels"),),
    lists=("labels",),
    count="num_labels",
)
