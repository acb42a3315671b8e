"""Defines the answer of search: the texts of a corpus that a query finds."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Hits"]


@dataclass(frozen=True)
class Hits(Result):
    """The texts that a query finds, the best first.

    Attributes:
        ids: their ids in the corpus.
        texts: the texts.
        scores: how well each answers the query; see `Searcher`.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    scores: Sequence[float]


ANSWER = AnswerType("search", Hits, count="num_hits")
