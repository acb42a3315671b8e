"""How well documents are found, against the definitions, and BM25."""

import numpy as np
import pytest

from keras_transformers.evaluation import bm25_similarities, retrieval_scores

RANDOM = np.random.default_rng(0)


def test_scores():
    similarities = RANDOM.random((30, 25))
    relevant = [set(RANDOM.choice(25, RANDOM.integers(1, 4), replace=False)) for _ in range(30)]
    recall, first, ndcg, recall_1 = [], [], [], []
    for row, right in zip(similarities, relevant, strict=True):
        ranked = sorted(range(25), key=lambda i: -row[i])[:10]
        hits = [i in right for i in ranked]
        recall.append(sum(hits) / len(right))
        recall_1.append(hits[0] / len(right))
        first.append(next((1 / (rank + 1) for rank, hit in enumerate(hits) if hit), 0))
        gain = sum(hit / np.log2(rank + 2) for rank, hit in enumerate(hits))
        ndcg.append(gain / sum(1 / np.log2(rank + 2) for rank in range(len(right))))
    assert retrieval_scores(similarities, relevant) == pytest.approx(
        {
            "recall_at_1": np.mean(recall_1),
            "recall_at_10": np.mean(recall),
            "mrr_at_10": np.mean(first),
            "ndcg_at_10": np.mean(ndcg),
        }
    )


def test_ndcg_is_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    similarities = RANDOM.random((20, 12))
    truth = RANDOM.random((20, 12)) < 0.2
    truth[:, 0] |= ~truth.any(axis=1)
    found = retrieval_scores(similarities, [set(np.flatnonzero(row)) for row in truth])
    assert found["ndcg_at_10"] == pytest.approx(metrics.ndcg_score(truth, similarities, k=10))


def test_fewer_documents_than_the_depth():
    assert retrieval_scores([[0.1, 0.2]], [{0}])["recall_at_10"] == 1
    assert set(retrieval_scores([[1.0]], [{0}], depth=3)) == {
        "recall_at_1", "recall_at_3", "mrr_at_3", "ndcg_at_3",
    }  # fmt: skip


def test_bm25_finds_words():
    pytest.importorskip("bm25s")
    documents = ["A dog runs.", "Two cats sleep on a mat.", "Der Hund läuft."]
    found = bm25_similarities(["the cats", "Hund"], documents)
    assert found.shape == (2, 3)
    assert found.argmax(axis=1).tolist() == [1, 2]


def test_errors():
    with pytest.raises(ValueError, match=r"shape \(1, 2\) .*2 queries"):
        retrieval_scores([[0.1, 0.2]], [{0}, {1}])
    with pytest.raises(ValueError, match="at least one relevant document"):
        retrieval_scores([[0.1, 0.2]], [set()])
