"""Scores documents for the terms of queries from an inverted index, in the graph."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

__all__: list[str] = []


class Postings:
    """An inverted index: for each term, the documents that have it, each with a weight.

    Args:
        terms: int (postings,), in 0 to `num_terms` - 1.
        documents: int (postings,), in 0 to `num_documents` - 1.
        weights: float (postings,).
        num_terms: size of the vocabulary.
        num_documents: size of the corpus.

    Attributes:
        variables: those to save.
    """

    def __init__(
        self,
        terms: np.ndarray,
        documents: np.ndarray,
        weights: np.ndarray,
        *,
        num_terms: int,
        num_documents: int,
    ) -> None:
        order = np.lexsort((documents, terms))
        starts = np.searchsorted(terms[order], np.arange(num_terms + 1))
        self.num_documents = num_documents
        self._starts = tf.Variable(starts.astype(np.int64), trainable=False)
        self._documents = tf.Variable(documents[order].astype(np.int32), trainable=False)
        self._weights = tf.Variable(weights[order].astype(np.float32), trainable=False)
        self.variables: Sequence[tf.Variable] = (self._starts, self._documents, self._weights)

    def scores(self, terms: tf.RaggedTensor, weights: tf.Tensor | None = None) -> tf.Tensor:
        """Computes the dot products of queries and documents.

        Args:
            terms: int64 (batch, None).
            weights: float32, of `terms.values`; by default each counts 1.

        Returns:
            Float32 (batch, documents).
        """
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            starts = tf.convert_to_tensor(self._starts)
            first, end = tf.gather(starts, terms.values), tf.gather(starts, terms.values + 1)
            places = tf.ragged.range(first, end)  # (terms, None)
            rows = tf.gather(terms.value_rowids(), places.value_rowids())  # (products,)
            products = tf.gather(tf.convert_to_tensor(self._weights), places.values)
            if weights is not None:
                products *= tf.gather(weights, places.value_rowids())
            documents = tf.gather(tf.convert_to_tensor(self._documents), places.values)
            size = tf.constant(self.num_documents, tf.int64)
            sums = tf.math.unsorted_segment_sum(
                products, rows * size + tf.cast(documents, tf.int64), terms.nrows() * size
            )
            return tf.reshape(sums, tf.stack([terms.nrows(), size]))
