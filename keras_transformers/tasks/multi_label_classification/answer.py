"""Defines the answer of multi-label classification: all labels that fit."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Labels"]


@dataclass(frozen=True, repr=False)
class Labels(Result):
    """The labels of a text or a pair of texts: any number of them.

    Attributes:
        labels: those above their thresholds, the most likely first.
        probabilities: one per label, in the order of the model's labels, independent of each other.
        abstained: whether the text's having or not having one of the labels is less probable than
            the pipeline's `abstain_below`; None without it.
    """

    labels: Sequence[str]
    probabilities: Sequence[float]
    abstained: bool | None = None


ANSWER = AnswerType(
    "multi_label_classification",
    Labels,
    inputs=(("text",), ("text", "text_b")),
    count="num_labels",
)
