"""Defines the answer of sentence order, which clients read without TensorFlow."""

from dataclasses import dataclass

from keras_transformers.results import Result
from keras_transformers.tasks import AnswerType


@dataclass(frozen=True)
class SentenceOrder(Result):
    """Whether two sentences are in their order.

    Attributes:
        in_order: whether they probably are.
        probability: the probability that they are.
    """

    in_order: bool
    probability: float


ANSWER = AnswerType("acme_sentence_order", SentenceOrder, inputs=(("text", "text_b"),))
