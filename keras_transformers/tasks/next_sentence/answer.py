"""Defines the answer of next-sentence prediction: a probability."""

from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["NextSentence"]


@dataclass(frozen=True)
class NextSentence(Result):
    """Whether one text follows another.

    Attributes:
        probability: the probability that the second text follows the first.
    """

    probability: float


ANSWER = AnswerType("next_sentence", NextSentence, inputs=(("text", "text_b"),))
