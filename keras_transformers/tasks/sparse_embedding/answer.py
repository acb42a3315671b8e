"""Defines the answer of sparse embedding: the tokens that describe a text, with weights."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["SparseEmbedding"]


@dataclass(frozen=True)
class SparseEmbedding(Result):
    """The weights above 0 of a text, one for each token of the vocabulary that describes it.

    Attributes:
        indices: the ids of these tokens; the one with the highest weight first.
        weights: their weights.
        tokens: the tokens, spelled as in the vocabulary.
    """

    indices: Sequence[int]
    weights: Sequence[float]
    tokens: Sequence[str]

    def dot(self, other: "SparseEmbedding") -> float:
        """Returns the dot product, which says how well a query and a document match.

        Args:
            other: the embedding of another text, of the same model.

        Example:
            >>> rain = SparseEmbedding([7, 2], [1.5, 0.5], ["rain", "wet"])
            >>> rain.dot(SparseEmbedding([2, 9], [2.0, 1.0], ["wet", "dog"]))
            1.0
        """
        weights = dict(zip(other.indices, other.weights, strict=True))
        pairs = zip(self.indices, self.weights, strict=True)
        return float(sum(weight * weights.get(index, 0.0) for index, weight in pairs))


ANSWER = AnswerType("sparse_embedding", SparseEmbedding, count="num_active")
