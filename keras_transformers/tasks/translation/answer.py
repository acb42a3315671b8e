"""Defines the answer of translation: a text."""

from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Translation"]


@dataclass(frozen=True)
class Translation(Result):
    """The translation of a text.

    Attributes:
        text: the translation itself.
        score: its log-probability divided by the length penalty.
    """

    text: str
    score: float


ANSWER = AnswerType("translation", Translation, renamed={"text": "translation"})
