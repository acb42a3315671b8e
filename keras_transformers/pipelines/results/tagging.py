"""The answer of tagging: words with labels."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.pipelines.results.reading import AnswerType, Result

__all__ = ["Tags"]


@dataclass(frozen=True)
class Tags(Result):
    """The words of a text and their labels.

    Attributes:
        tokens: the words.
        labels: one per word.
        starts: where each word starts in the text.
        ends: where it ends (exclusive).
        scores: the probability of each label.
    """

    tokens: Sequence[str]
    labels: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    scores: Sequence[float]


ANSWER = AnswerType("tagging", Tags, count="num_tokens")
