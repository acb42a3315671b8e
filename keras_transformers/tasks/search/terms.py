"""Indexes the sparse embeddings of a corpus, in the graph."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tasks.search.corpus import Corpus
from keras_transformers.tasks.search.index import Index
from keras_transformers.tasks.search.postings import Postings
from keras_transformers.tasks.sparse_embedding.pipeline import SparseEmbedder

__all__ = ["TermIndex"]


class TermIndex(Index):
    """Scores texts by the dot product of their sparse embedding and a query's.

    Args:
        embed: embeds texts as its side "document", and queries as its side "query".
        corpus: the texts.
        batch_size: texts that are embedded at once.
    """

    def __init__(self, embed: SparseEmbedder, corpus: Corpus, *, batch_size: int = 32) -> None:
        self.num_documents = len(corpus)
        self._queries = embed.with_options(side="query")
        embeddings = embed(corpus.texts, side="document", batch_size=batch_size)
        counts = [len(one.indices) for one in embeddings]
        self._postings = Postings(
            np.concatenate([np.asarray(one.indices, np.int64) for one in embeddings]),
            np.repeat(np.arange(len(corpus)), counts),
            np.concatenate([np.asarray(one.weights, np.float32) for one in embeddings]),
            num_terms=embed.tokenizer.vocabulary_size,
            num_documents=len(corpus),
        )
        has_table = embed.query_table is not None
        self.models = () if has_table else (embed.model,)
        self.tokenizers = tuple(embed.tokenizers.values())
        self.stored = tuple(self._postings.variables)

    def scores(self, text: tf.Tensor) -> tf.Tensor:
        """Scores texts for queries, strings (batch,), in the graph: float32 (batch, texts)."""
        answer = self._queries.answer(text=text)
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            lengths = answer["num_active"]
            terms = tf.RaggedTensor.from_tensor(answer["indices"], lengths)
            weights = tf.RaggedTensor.from_tensor(answer["weights"], lengths).values
            return self._postings.scores(tf.cast(terms, tf.int64), weights)

    def metadata(self) -> Mapping[str, Any]:
        """Returns the kind, and what an export says of the embedder."""
        return {"kind": "terms", **self._queries.metadata()}
