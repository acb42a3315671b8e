"""Defines the answer of classification: a label."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Classification"]


@dataclass(frozen=True, repr=False)
class Classification(Result):
    """The class of a text, a pair of texts, or an image.

    Attributes:
        label: the most likely label.
        probabilities: one per label, in the order of the model's labels.
        label_index: the index of `label` in that order.
        abstained: whether its probability is below the pipeline's `abstain_below`; None without it.
    """

    label: str
    probabilities: Sequence[float]
    label_index: int
    abstained: bool | None = None


ANSWER = AnswerType("classification", Classification, inputs=(("text",), ("text", "text_b")))
