"""Losses that bring the vectors of texts that belong together closer than those of others."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor

__all__ = ["CandidateContrast", "CandidateDistillation", "InBatchContrast", "PairSimilarity"]

_PACKAGE = "keras_transformers"
_MASKED = -1e9

Similarity = Literal["cosine", "dot"]


@keras.saving.register_keras_serializable(_PACKAGE)
class InBatchContrast(keras.losses.Loss):
    """Cross-entropy of each text's own partner among the partners of all texts in the batch.

    Van den Oord et al. 2018, arXiv:1807.03748 (InfoNCE); Karpukhin et al. 2020, arXiv:2004.04906;
    sentence-transformers' MultipleNegativesRankingLoss. `y_pred` is (batch, group, width): a text,
    its partner, and texts that look alike and do not belong to it ("hard negatives"), all of which
    are candidates for every text of the batch. `y_true` is (batch, group), integers that are equal
    for equal texts: a candidate that is another copy of the right one, or of the text itself, does
    not count as wrong.

    Args:
        temperature: divides the similarities; the lower, the more the nearest wrong candidates
            count.
        symmetric: whether each partner must find its text among all texts, too, with equal weight.
        dims: numbers of first dimensions whose vectors should serve by themselves, the whole width
            among them; the loss is the mean over them (Kusupati et al. 2022, arXiv:2205.13147,
            "Matryoshka"). Empty for the whole width alone.
        similarity: "cosine", or "dot" for dot products of the vectors as they are.
        name: the loss's name.
        reduction: see `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is not above 0, one of `dims` is below 1, or `similarity` is
            unknown.

    Example:
        >>> vectors = keras.ops.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        >>> loss = InBatchContrast(temperature=0.5)
        >>> round(float(loss(keras.ops.array([[0, 1], [2, 3]]), vectors)), 4)
        0.1269
    """

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        symmetric: bool = True,
        dims: Sequence[int] = (),
        similarity: Similarity = "cosine",
        name: str = "in_batch_contrast",
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        if temperature <= 0:
            raise ValueError(f"temperature={temperature}: must be above 0")
        if similarity not in get_args(Similarity):
            raise ValueError(f"similarity={similarity!r}: use 'cosine' or 'dot'")
        self.temperature = temperature
        self.symmetric = symmetric
        self.dims = _checked_dims(dims)
        self.similarity = similarity

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each example: (batch,)."""
        vectors = ops.cast(y_pred, "float32")
        parts = _first_dims(vectors, self.dims)
        if self.similarity == "cosine":
            parts = [_unit(part) for part in parts]
        losses = [self._of(y_true, part) for part in parts]
        return sum(losses[1:], losses[0]) / len(losses)

    def _of(self, ids: Tensor, vectors: Tensor) -> Tensor:
        size = ops.shape(ids)[0]
        right = ops.arange(size)
        flat_ids = ops.concatenate([ids[:, 1], ops.reshape(ids[:, 2:], (-1,))], axis=0)
        others = ops.reshape(vectors[:, 2:], (-1, vectors.shape[-1]))
        candidates = ops.concatenate([vectors[:, 1], others], axis=0)  # (candidates, width)
        loss = self._crossentropy(vectors[:, 0], candidates, ids[:, 0], ids[:, 1], flat_ids, right)
        if not self.symmetric:
            return loss
        back = self._crossentropy(
            vectors[:, 1], vectors[:, 0], ids[:, 1], ids[:, 0], ids[:, 0], right
        )
        return (loss + back) / 2

    def _crossentropy(
        self,
        texts: Tensor,
        candidates: Tensor,
        text_ids: Tensor,
        right_ids: Tensor,
        ids: Tensor,
        right: Tensor,
    ) -> Tensor:
        """Returns the cross-entropy of candidate i for text i: (batch,)."""
        scores = ops.matmul(texts, ops.transpose(candidates)) / self.temperature
        return _among_candidates(scores, text_ids, right_ids, ids, right)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this loss."""
        options = {
            "temperature": self.temperature,
            "symmetric": self.symmetric,
            "dims": self.dims,
            "similarity": self.similarity,
        }
        return super().get_config() | options


@keras.saving.register_keras_serializable(_PACKAGE)
class PairSimilarity(keras.losses.Loss):
    """Squared difference between the cosine of two texts' vectors and their score.

    Reimers & Gurevych 2019, arXiv:1908.10084, section 3. `y_pred` is (batch, 2, width), `y_true`
    (batch,), scores from -1 to 1.

    Args:
        dims: see `InBatchContrast`.
        name: the loss's name.
        reduction: see `keras.losses.Loss`.
    """

    def __init__(
        self,
        *,
        dims: Sequence[int] = (),
        name: str = "pair_similarity",
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        self.dims = _checked_dims(dims)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each example: (batch,)."""
        vectors = ops.cast(y_pred, "float32")
        losses = []
        for part in _first_dims(vectors, self.dims):
            unit = _unit(part)
            cosine = ops.sum(unit[:, 0] * unit[:, 1], axis=-1)
            losses.append(ops.square(cosine - ops.cast(y_true, "float32")))
        return sum(losses[1:], losses[0]) / len(losses)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this loss."""
        return super().get_config() | {"dims": self.dims}


@keras.saving.register_keras_serializable(_PACKAGE)
class CandidateContrast(keras.losses.Loss):
    """Cross-entropy of each query's own document among the documents of all queries in the batch.

    It takes scores, as late-interaction models compute them; `InBatchContrast` takes vectors
    (Khattab & Zaharia 2020, arXiv:2004.12832, with in-batch negatives as in ColBERTv2; PyLate's
    Contrastive). `y_pred` is (batch, batch * group): each query's scores of all documents, where
    the first of the query's own group is the right one and the others look alike and do not answer
    it. `y_true` is (batch, 1 + group), integers that are equal for equal texts, first the query's:
    a document that is another copy of the right one, or of the query itself, does not count as
    wrong.

    Args:
        temperature: divides the scores.
        name: the loss's name.
        reduction: see `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is not above 0.

    Example:
        >>> scores = keras.ops.array([[1.0, 0.0], [0.0, 1.0]])
        >>> loss = CandidateContrast(temperature=0.5)
        >>> round(float(loss(keras.ops.array([[0, 1], [2, 3]]), scores)), 4)
        0.1269
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        name: str = "candidate_contrast",
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        if temperature <= 0:
            raise ValueError(f"temperature={temperature}: must be above 0")
        self.temperature = temperature

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each example: (batch,)."""
        scores = ops.cast(y_pred, "float32") / self.temperature
        batch, columns = ops.shape(y_true)
        right = ops.arange(batch) * (columns - 1)
        ids = ops.reshape(y_true[:, 1:], (-1,))
        return _among_candidates(scores, y_true[:, 0], y_true[:, 1], ids, right)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this loss."""
        return super().get_config() | {"temperature": self.temperature}


@keras.saving.register_keras_serializable(_PACKAGE)
class CandidateDistillation(keras.losses.Loss):
    """KL divergence of the scores of each query's own documents from a teacher's.

    Both become probabilities over these documents (ColBERTv2: Santhanam et al. 2022,
    arXiv:2112.01488, section 3.2). `y_pred` is (batch, batch * group), as for `CandidateContrast`;
    `y_true` is (batch, group), the teacher's scores.

    Args:
        temperature: divides both scores.
        name: the loss's name.
        reduction: see `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is not above 0.

    Example:
        >>> loss = CandidateDistillation()
        >>> scores = keras.ops.array([[2.0, 1.0, 9.0, 9.0], [9.0, 9.0, 1.0, 1.0]])
        >>> round(float(loss(keras.ops.array([[5.0, 4.0], [3.0, 3.0]]), scores)), 4)
        0.0
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        name: str = "candidate_distillation",
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        if temperature <= 0:
            raise ValueError(f"temperature={temperature}: must be above 0")
        self.temperature = temperature

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each example: (batch,)."""
        batch, group = ops.shape(y_true)
        scores = ops.reshape(ops.cast(y_pred, "float32"), (batch, batch, group))
        diagonal = ops.eye(batch, dtype="float32")[:, :, None]
        scores = ops.sum(scores * diagonal, axis=1)  # (batch, group)
        ours, theirs = (
            ops.log_softmax(side / self.temperature, axis=-1)
            for side in (scores, ops.cast(y_true, "float32"))
        )
        return ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this loss."""
        return super().get_config() | {"temperature": self.temperature}


def _among_candidates(
    scores: Tensor, text_ids: Tensor, right_ids: Tensor, ids: Tensor, right: Tensor
) -> Tensor:
    """Returns the cross-entropy of each text's candidate `right` among all: (batch,).

    Args:
        scores: (batch, candidates).
        text_ids: (batch,), equal for equal texts, as are the next two.
        right_ids: (batch,), those of the right candidates.
        ids: (candidates,).
        right: the indices of the right candidates, (batch,).
    """
    is_right = right[:, None] == ops.arange(ops.shape(ids)[0])[None]
    same = (ids[None] == right_ids[:, None]) | (ids[None] == text_ids[:, None])
    scores = ops.where(ops.logical_and(same, ops.logical_not(is_right)), _MASKED, scores)
    right_scores = ops.sum(ops.where(is_right, scores, 0.0), axis=1)
    return ops.logsumexp(scores, axis=1) - right_scores


def _checked_dims(dims: Sequence[int]) -> list[int]:
    if any(size < 1 for size in dims):
        raise ValueError(f"dims={list(dims)}: each must be 1 or more")
    return list(dims)


def _first_dims(vectors: Tensor, dims: Sequence[int]) -> list[Tensor]:
    width = vectors.shape[-1]
    if any(size > width for size in dims):
        raise ValueError(f"dims={list(dims)}: the vectors have {width} dimensions")
    return [vectors[..., :size] for size in dims] or [vectors]


def _unit(vectors: Tensor) -> Tensor:
    return vectors / ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True) + 1e-12)
