"""Defines the answer of multiple choice: one of the choices."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Choice"]


@dataclass(frozen=True, repr=False)
class Choice(Result):
    """The one of several texts that fits.

    Attributes:
        choice: the most likely choice; "" without choices.
        probabilities: one per choice.
        choice_index: the index of `choice`; -1 without choices.
        abstained: whether its probability is below the pipeline's `abstain_below`; None without it.
    """

    choice: str
    probabilities: Sequence[float]
    choice_index: int
    abstained: bool | None = None


ANSWER = AnswerType(
    "multiple_choice",
    Choice,
    inputs=(("text", "choices"),),
    lists=("choices",),
    count="num_choices",
)
