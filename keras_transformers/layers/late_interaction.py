"""Compares the vectors of each token of queries and documents."""

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.masks import MASKED_SCORE
from keras_transformers.layers.tensors import Tensor

__all__ = ["MaxSim"]


@keras.saving.register_keras_serializable(PACKAGE)
class MaxSim(keras.layers.Layer):
    """Scores each document of a batch for each query, by the vectors of their tokens.

    Each token of a query finds the most similar token of the document; the score is the sum of
    these similarities. Khattab & Zaharia 2020, arXiv:2004.12832, section 3.3. A document without
    tokens scores 0.

    Example:
        >>> queries = keras.ops.array([[[1.0, 0.0], [0.0, 1.0]]])
        >>> documents = keras.ops.array([[[0.6, 0.8], [1.0, 0.0]], [[0.0, 1.0], [9.0, 9.0]]])
        >>> mask = keras.ops.array([[True, True], [True, False]])
        >>> MaxSim()(queries, documents, mask[:1], mask).numpy().round(4)
        array([[1.8, 1. ]], dtype=float32)
    """

    def call(
        self, queries: Tensor, documents: Tensor, query_mask: Tensor, document_mask: Tensor
    ) -> Tensor:
        """Computes the scores.

        Args:
            queries: (queries, query tokens, width).
            documents: (documents, document tokens, width).
            query_mask: bool (queries, query tokens), True at tokens that count.
            document_mask: bool (documents, document tokens), the same.

        Returns:
            (queries, documents).
        """
        num_queries, query_length = ops.shape(queries)[:2]
        num_documents, length, width = ops.shape(documents)
        rows = ops.reshape(queries, (-1, width))  # (queries * query tokens, width)
        columns = ops.reshape(documents, (-1, width))
        similarities = ops.reshape(
            ops.matmul(rows, ops.transpose(columns)),
            (num_queries, query_length, num_documents, length),
        )
        similarities = ops.where(document_mask[None, None], similarities, MASKED_SCORE)
        best = ops.max(similarities, axis=-1)  # (queries, query tokens, documents)
        has_tokens = ops.any(document_mask, axis=-1)  # (documents,)
        counts = ops.logical_and(query_mask[:, :, None], has_tokens[None, None])
        return ops.sum(ops.where(counts, best, ops.zeros((), best.dtype)), axis=1)

    def compute_output_spec(
        self, queries: Tensor, documents: Tensor, query_mask: Tensor, document_mask: Tensor
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((queries.shape[0], documents.shape[0]), dtype=queries.dtype)
