"""Losses over the documents of a query, for rerankers."""

from typing import Any

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor

__all__ = ["RankingCrossentropy"]

_PACKAGE = "keras_transformers"
_MASKED = -1e9
_NO_DOCUMENT = -1.0


@keras.saving.register_keras_serializable(_PACKAGE)
class RankingCrossentropy(keras.losses.Loss):
    """Cross-entropy of each relevant document among a query's others, and of each document alone.

    The first part compares a relevant document with the irrelevant ones of its query: it is the
    cross-entropy of a softmax over their scores, so that the irrelevant documents that look right
    have the largest gradients (Gao et al. 2021, arXiv:2101.08751, "localized contrastive
    estimation"). The second part is the binary cross-entropy of each document (Nogueira & Cho 2019,
    arXiv:1901.04085), which gives the sigmoid of a score its meaning: softmax only determines the
    differences of a query's scores.

    `y_true` is (batch, documents): 1 for a relevant document, 0 for another, -1 where there is
    none. `y_pred` are the scores before a sigmoid, (batch, documents). The loss of a document may
    have a sample weight, 0 where there is none.

    Args:
        pointwise: the weight of the second part.
        name: the loss's name.
        reduction: see `keras.losses.Loss`.

    Raises:
        ValueError: `pointwise` is below 0.

    Example:
        >>> loss = RankingCrossentropy(pointwise=0.0)
        >>> scores = keras.ops.array([[2.0, 1.0, 1.0, 0.0]])
        >>> round(float(loss(keras.ops.array([[1.0, 0.0, 0.0, -1.0]]), scores)), 4)
        0.4136
    """

    def __init__(
        self,
        *,
        pointwise: float = 1.0,
        name: str = "ranking_crossentropy",
        reduction: str | None = "mean_with_sample_weight",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")
        if pointwise < 0:
            raise ValueError(f"pointwise={pointwise}: must be 0 or more")
        self.pointwise = pointwise

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each document: (batch, documents)."""
        labels, scores = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        is_document = labels > _NO_DOCUMENT / 2
        is_relevant = labels > 0.5
        is_other = ops.logical_and(is_document, ops.logical_not(is_relevant))
        scores = ops.where(is_document, scores, 0.0)
        others = ops.logsumexp(ops.where(is_other, scores, _MASKED), axis=1, keepdims=True)
        # -log(exp(score) / (exp(score) + the sum of exp(others))).
        of_lists = ops.where(is_relevant, ops.softplus(others - scores), 0.0)
        # A list counts as much as its documents, of which only the relevant ones have this part.
        share = _count(is_document) / ops.maximum(_count(is_relevant), 1.0)  # (batch, 1)
        alone = ops.softplus(scores) - labels * scores
        return ops.where(is_document, share * of_lists + self.pointwise * alone, 0.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this loss."""
        return super().get_config() | {"pointwise": self.pointwise}


def _count(flags: Tensor) -> Tensor:
    """Counts along the last axis: float32 (batch, 1)."""
    return ops.sum(ops.cast(flags, "float32"), axis=1, keepdims=True)
