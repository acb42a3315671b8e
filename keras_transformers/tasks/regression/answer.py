"""Defines the answer of regression: a score."""

from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Regression"]


@dataclass(frozen=True)
class Regression(Result):
    """The score of a text or a pair of texts.

    Attributes:
        score: on the scale of the training data.
    """

    score: float


ANSWER = AnswerType("regression", Regression, inputs=(("text",), ("text", "text_b")))
