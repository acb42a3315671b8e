"""Measures how well vectors find texts, or compare them."""

from collections.abc import Sequence

import numpy as np

from keras_transformers.data.text import TextPairs
from keras_transformers.evaluation import bm25_similarities, glue_scores, retrieval_scores
from keras_transformers.tasks.embedding.pipeline import Embedder

__all__ = ["bm25_scores", "main_figure", "similarity_scores"]


def similarity_scores(
    embed: Embedder, pairs: TextPairs, *, dims: int | None = None, batch_size: int = 64
) -> dict[str, float]:
    """Measures how well an embedder's cosine similarities find partners, or agree with scores.

    Each distinct text is a query against all distinct partners and negatives. The prompts named
    "query" and "document" are used if the embedder has both.

    Args:
        embed: a `pipelines.Embedder`.
        pairs: pairs with or without scores.
        dims: how many leading dimensions to use; all by default.
        batch_size: texts per batch.

    Returns:
        recall_at_1, recall_at_10, mrr_at_10 and ndcg_at_10 of pairs; pearson and spearman of scored
        pairs.
    """
    cosines = similarities(embed, pairs, dims=dims, batch_size=batch_size)
    return scores_of(cosines, pairs)


def scores_of(cosines: np.ndarray, pairs: TextPairs) -> dict[str, float]:
    """Returns what `similarity_scores` does, from similarities."""
    if pairs.scores is not None:
        return glue_scores(("pearson", "spearman"), cosines, np.array(pairs.scores))
    return retrieval_scores(cosines, relevant(pairs))


def similarities(
    embed: Embedder, pairs: TextPairs, *, dims: int | None = None, batch_size: int = 64
) -> np.ndarray:
    """Returns the cosines of queries and documents, (queries, documents), or of scored pairs."""
    if pairs.scores is not None:
        sides = [
            vectors(embed, side, batch_size=batch_size) for side in (pairs.texts, pairs.partners)
        ]
        of_pairs: np.ndarray = np.sum(
            np.multiply(*(unit(side[:, :dims]) for side in sides)), axis=1
        )
        return of_pairs
    both = {"query", "document"} <= set(embed.prompts)
    queries, documents = pairs.queries(), pairs.documents()
    of_queries = vectors(embed, list(queries), "query" if both else None, batch_size=batch_size)
    of_documents = vectors(embed, documents, "document" if both else None, batch_size=batch_size)
    cosines: np.ndarray = unit(of_queries[:, :dims]) @ unit(of_documents[:, :dims]).T
    return cosines


def main_figure(pairs: TextPairs) -> str:
    """Returns the name of the metric that selects the best epoch."""
    return "ndcg_at_10" if pairs.scores is None else "spearman"


def bm25_scores(pairs: TextPairs) -> dict[str, float]:
    """Returns the same metrics of pairs for BM25, as `ndcg_at_10_of_bm25` and so on."""
    by_words = bm25_similarities(list(pairs.queries()), pairs.documents())
    scores = retrieval_scores(by_words, relevant(pairs))
    return {f"{name}_of_bm25": value for name, value in scores.items()}


def vectors(
    embed: Embedder, texts: Sequence[str], prompt_name: str | None = None, *, batch_size: int = 64
) -> np.ndarray:
    """Returns the vectors of texts: float32 (texts, width)."""
    embeddings = embed(list(texts), prompt_name=prompt_name, batch_size=batch_size)
    return np.array([embedding.vector for embedding in embeddings], np.float32)


def relevant(pairs: TextPairs) -> list[set[int]]:
    """Returns the indices of each query's partners among the documents."""
    place = {document: i for i, document in enumerate(pairs.documents())}
    return [{place[partner] for partner in partners} for partners in pairs.queries().values()]


def unit(rows: np.ndarray) -> np.ndarray:
    """Scales vectors (rows, width) to length 1; zeros stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
