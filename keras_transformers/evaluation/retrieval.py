"""Measures retrieval: recall, reciprocal rank and nDCG, with BM25 for comparison."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.dependencies.extras import optional

__all__ = ["bm25_similarities", "retrieval_scores"]


def retrieval_scores(
    similarities: ArrayLike, relevant: Sequence[Collection[int]], *, depth: int = 10
) -> dict[str, float]:
    """Returns recall at 1 and at `depth`, and MRR and nDCG at `depth`, 0 to 1.

    Recall at k is the mean share of a query's relevant documents among its first k. MRR is the mean
    of 1 / the rank of the first relevant one, 0 beyond `depth`. nDCG has relevance 0 or 1 and the
    discount log2(rank + 1) (Järvelin & Kekäläinen 2002). Equal documents keep their order.

    Args:
        similarities: similarity of each document to each query (queries, documents).
        relevant: the indices of each query's relevant documents, at least one.
        depth: the last rank that counts.

    Raises:
        ValueError: there are no queries, or one has no relevant document.

    Example:
        >>> scores = retrieval_scores([[0.9, 0.1, 0.5]], [{2}])
        >>> scores["recall_at_1"], scores["recall_at_10"], scores["mrr_at_10"]
        (0.0, 1.0, 0.5)
    """
    similarities = np.asarray(similarities)
    if len(similarities) != len(relevant) or not len(relevant) or not all(relevant):
        raise ValueError(
            f"similarities of shape {similarities.shape} for {len(relevant)} queries: pass a row "
            "and at least one relevant document for each query"
        )
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :depth]
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    sums = np.zeros(4)
    for ranked, right in zip(order, relevant, strict=True):
        hits = np.isin(ranked, list(right))  # (depth,)
        ideal = discounts[: min(len(right), depth)].sum()
        sums += (
            hits[0] / len(right),
            hits.sum() / len(right),
            1 / (1 + int(np.argmax(hits))) if hits.any() else 0.0,
            (hits * discounts[: len(hits)]).sum() / ideal,
        )
    names = ("recall_at_1", f"recall_at_{depth}", f"mrr_at_{depth}", f"ndcg_at_{depth}")
    return dict(zip(names, (sums / len(relevant)).tolist(), strict=True))


def bm25_similarities(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Returns BM25's score of each document for each query: float32 (queries, documents).

    Robertson & Zaragoza 2009, with the package bm25s' defaults (k1 = 1.5, b = 0.75, Lucene's idf),
    on lower-cased words without stop words removed: the same for every language.

    Raises:
        MissingExtraError: bm25s is not installed.
    """
    return np.stack(list(_scores(queries, documents)))


def bm25_best(
    queries: Sequence[str], documents: Sequence[str], answers: Iterable[Collection[str]], count: int
) -> Iterator[list[int]]:
    """Yields for each query the indices of the documents that BM25 ranks first.

    Args:
        queries: the queries.
        documents: different documents.
        answers: the documents of each query that do not count.
        count: how many documents to find for a query.

    Raises:
        MissingExtraError: bm25s is not installed.
    """
    for scores, left_out in zip(_scores(queries, documents), answers, strict=True):
        ranked = np.argsort(-scores, kind="stable")[: count + len(left_out)].tolist()
        yield [place for place in ranked if documents[place] not in left_out][:count]


def _scores(queries: Sequence[str], documents: Sequence[str]) -> Iterator[np.ndarray]:
    """Yields BM25's scores of all documents for each query: float32 (documents,)."""
    bm25s = optional("bm25s", extra="evaluation")
    words = {"stopwords": None, "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents), **words), show_progress=False)
    none = np.zeros(len(documents), np.float32)  # for a query without words
    for query in bm25s.tokenize(list(queries), return_ids=False, **words):
        yield index.get_scores(query) if query else none
