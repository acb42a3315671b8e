"""The package `llama-index-postprocessor-tei-rerank`, unmodified."""

import numpy as np
import pytest

tei = pytest.importorskip(
    "llama_index.postprocessor.tei_rerank",
    reason="needs llama-index-postprocessor-tei-rerank: make test-clients",
)
schema = pytest.importorskip("llama_index.core.schema")

FILMS = ["a good film", "a very long film", "a bad film ."]


def test_reranking(served):
    nodes = [schema.NodeWithScore(node=schema.TextNode(text=text), score=0.0) for text in FILMS]
    reranker = tei.TextEmbeddingInference(base_url=served.url, top_n=3)
    ranked = reranker.postprocess_nodes(nodes, query_str="a film")
    (expected,) = served.client.ask(["a film"], [FILMS], model="reranking")
    assert [node.text for node in ranked] == [FILMS[index] for index in expected.order]
    scores = np.float32([node.score for node in ranked])
    np.testing.assert_array_equal(scores, np.float32(expected.scores)[list(expected.order)])
