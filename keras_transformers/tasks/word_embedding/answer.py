"""Defines the answer of word embedding: one vector per word and layer."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["WordVectors"]


@dataclass(frozen=True)
class WordVectors(Result):
    """The words of a text and their vectors.

    Attributes:
        tokens: the words.
        vectors: (words, layers, hidden).
    """

    tokens: Sequence[str]
    vectors: Sequence[Sequence[Sequence[float]]]


ANSWER = AnswerType("word_embedding", WordVectors, count="num_tokens")
