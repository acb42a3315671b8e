"""Defines the answer of embedding: a vector."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Embedding"]


@dataclass(frozen=True)
class Embedding(Result):
    """The vector of a text.

    Attributes:
        vector: (hidden,).
    """

    vector: Sequence[float]


ANSWER = AnswerType("embedding", Embedding, renamed={"vector": "embedding"})
