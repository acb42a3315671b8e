"""Measures how well sparse embeddings find texts, and what a search with them costs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.data.text import TextPairs
from keras_transformers.evaluation import retrieval_scores
from keras_transformers.tasks.embedding.searching import relevant
from keras_transformers.tasks.sparse_embedding.answer import SparseEmbedding

__all__: list[str] = []

# From texts and their side, "query" or "document", to their embeddings.
Embed = Callable[[list[str], str], Sequence[SparseEmbedding]]


def searched(embed: Embed, pairs: TextPairs) -> dict[str, np.ndarray]:
    """Embeds the distinct queries and documents of pairs.

    Returns:
        similarities: dot products (queries, documents), float32.
        active_dims_of_queries, active_dims_of_documents: how many weights each has, int.
        flops: products per pair of a query and a document, in an inverted index.
    """
    sides = {"query": list(pairs.queries()), "document": pairs.documents()}
    queries, documents = (embed(texts, side) for side, texts in sides.items())
    counts = [np.array([len(one.indices) for one in side]) for side in (queries, documents)]
    similarities, products = _with_index(queries, documents)
    return {
        "similarities": similarities,
        "active_dims_of_queries": counts[0],
        "active_dims_of_documents": counts[1],
        "flops": np.array(products / similarities.size),
    }


def search_scores(results: Mapping[str, Any], pairs: TextPairs) -> dict[str, float]:
    """Returns the metrics of what `searched` returns.

    Returns:
        recall_at_1, recall_at_10, mrr_at_10, ndcg_at_10; active_dims_of_queries and
        active_dims_of_documents, the means; and flops (Paria et al. 2020, arXiv:2004.05665).
    """
    costs = {name: float(np.mean(x)) for name, x in results.items() if name != "similarities"}
    return {**retrieval_scores(results["similarities"], relevant(pairs)), **costs}


def _with_index(
    queries: Sequence[SparseEmbedding], documents: Sequence[SparseEmbedding]
) -> tuple[np.ndarray, int]:
    """Returns all dot products, from an inverted index, and how many products they took."""
    counts = [len(document.indices) for document in documents]
    rows = np.repeat(np.arange(len(documents)), counts)
    token_ids, weights = (
        np.concatenate([np.asarray(column, kind) for column in columns] or [np.zeros(0, kind)])
        for kind, columns in (
            (np.int64, [document.indices for document in documents]),
            (np.float32, [document.weights for document in documents]),
        )
    )
    order = np.argsort(token_ids, kind="stable")
    token_ids, rows, weights = token_ids[order], rows[order], weights[order]
    similarities = np.zeros((len(queries), len(documents)), np.float32)
    products = 0
    for scores, query in zip(similarities, queries, strict=True):
        wanted = np.asarray(query.indices, np.int64)
        starts = np.searchsorted(token_ids, wanted, "left")
        ends = np.searchsorted(token_ids, wanted, "right")
        for start, end, weight in zip(starts, ends, query.weights, strict=True):
            # A token occurs once in a document, so no row twice.
            scores[rows[start:end]] += np.float32(weight) * weights[start:end]
        products += int(np.sum(ends - starts))
    return similarities, products
