"""Defines the answer of reranking: scores of documents, and their order."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Ranking"]


@dataclass(frozen=True)
class Ranking(Result):
    """How well documents answer a query.

    Attributes:
        scores: one per document, in the order given; 0 for "", which is not a document.
        order: the indices of the documents, the best first, padded with one -1 for each "".
    """

    scores: Sequence[float]
    order: Sequence[int]


ANSWER = AnswerType(
    "reranking",
    Ranking,
    inputs=(("text", "documents"),),
    lists=("documents",),
    count="num_documents",
)
