"""Defines the answer of next-sentence prediction: a probability."""

from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["NextSentence"]


@dataclass(frozen=True, repr=False)
class NextSentence(Result):
    """Whether one text follows another.

    Attributes:
        probability: the probability that the second text follows the first.
        abstained: whether the likelier of both answers is less probable than the pipeline's
            `abstain_below`; None without it.
    """

    probability: float
    abstained: bool | None = None


ANSWER = AnswerType("next_sentence", NextSentence, inputs=(("text", "text_b"),))
