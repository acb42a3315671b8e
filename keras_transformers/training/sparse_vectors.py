"""Losses for sparse vectors of texts: few weights above 0, and a teacher's margins."""

from typing import Any

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor

__all__ = ["MarginDistillation", "WithFlops"]

_PACKAGE = "keras_transformers"


@keras.saving.register_keras_serializable(_PACKAGE)
class MarginDistillation(keras.losses.Loss):
    """Squared difference between a model's margins and a teacher's (MarginMSE).

    Hofstätter et al. 2020, arXiv:2010.02666; sentence-transformers' SparseMarginMSELoss. A margin
    is how much better a query matches its document than another one, by dot products. `y_pred` is
    (batch, group, width): a query, its document and at least one other; `y_true` is (batch, group
    - 1), the teacher's score of each document.

    Args:
        name: the loss's name.
        reduction: see `keras.losses.Loss`.

    Example:
        >>> vectors = keras.ops.array([[[1.0, 0.0], [3.0, 0.0], [1.0, 5.0]]])
        >>> float(MarginDistillation()(keras.ops.array([[4.0, 1.0]]), vectors))  # 3 - 1, 4 - 1
        1.0
    """

    def __init__(
        self,
        *,
        name: str = "margin_distillation",
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each example: (batch,)."""
        vectors, teacher = ops.cast(y_pred, "float32"), ops.cast(y_true, "float32")
        scores = ops.squeeze(  # (batch, documents)
            ops.matmul(vectors[:, 1:], vectors[:, 0, :, None]), axis=-1
        )
        margins, wanted = (side[:, :1] - side[:, 1:] for side in (scores, teacher))
        return ops.mean(ops.square(margins - wanted), axis=-1)


@keras.saving.register_keras_serializable(_PACKAGE)
class WithFlops(keras.losses.Loss):
    """Adds the FLOPS regularizer to a loss, so that vectors get few weights above 0.

    Paria et al. 2020, arXiv:2004.05665: the sum over the vocabulary of the squared mean weight in
    the batch, which bounds the products that an inverted index computes for a query. Queries and
    documents have weights of their own, as in Formal et al. 2021, arXiv:2109.10086, and
    sentence-transformers' SpladeLoss.

    Args:
        loss: a loss of `y_pred` (batch, group, width): a query and its documents.
        query_weight: the factor of the queries' regularizer.
        document_weight: the factor of the documents' regularizer.
        name: the loss's name.
        reduction: see `keras.losses.Loss`.

    Raises:
        ValueError: a factor is below 0.

    Example:
        >>> vectors = keras.ops.array([[[1.0, 0.0], [3.0, 0.0], [1.0, 5.0]]])
        >>> loss = WithFlops(MarginDistillation(), query_weight=0.1, document_weight=0.0)
        >>> round(float(loss(keras.ops.array([[4.0, 1.0]]), vectors)), 4)  # 1 + 0.1 * 1^2
        1.1
    """

    def __init__(
        self,
        loss: keras.losses.Loss,
        *,
        query_weight: float = 5e-5,
        document_weight: float = 3e-5,
        name: str = "with_flops",
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        for side, weight in (("query", query_weight), ("document", document_weight)):
            if not weight >= 0:
                raise ValueError(f"{side}_weight={weight}: must be 0 or above")
        self.loss = loss
        self.query_weight, self.document_weight = query_weight, document_weight

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each example, (batch,), each with the batch's regularizer."""
        vectors = ops.cast(y_pred, "float32")
        documents = ops.reshape(vectors[:, 1:], (-1, vectors.shape[-1]))
        regularizer = self.query_weight * _flops(vectors[:, 0])
        regularizer += self.document_weight * _flops(documents)
        return self.loss.call(y_true, y_pred) + regularizer

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this loss."""
        weights = {"query_weight": self.query_weight, "document_weight": self.document_weight}
        loss = keras.saving.serialize_keras_object(self.loss)
        return super().get_config() | {"loss": loss, **weights}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WithFlops":
        """Rebuilds the loss."""
        return cls(**config | {"loss": keras.saving.deserialize_keras_object(config["loss"])})


def _flops(vectors: Tensor) -> Tensor:
    """Returns the regularizer of (rows, width): a scalar."""
    return ops.sum(ops.square(ops.mean(vectors, axis=0)))
