"""The package `cohere`, unmodified."""

import numpy as np
import pytest

KEY = "a key that no server checks"

cohere = pytest.importorskip("cohere", reason="needs cohere: make test-clients")

FILMS = ["a good film", "a very long film", "a bad film ."]


@pytest.fixture(params=["ClientV2", "Client"])  # /v2/rerank, /v1/rerank
def client(request, served):
    return getattr(cohere, request.param)(api_key=KEY, base_url=served.url)


def test_reranking(client, served):
    answer = client.rerank(model="reranking", query="a film", documents=FILMS, top_n=2)
    (expected,) = served.client.ask(["a film"], [FILMS], model="reranking")
    assert [each.index for each in answer.results] == list(expected.order)[:2]
    scores = np.float32([each.relevance_score for each in answer.results])
    np.testing.assert_array_equal(scores, np.float32(expected.scores)[list(expected.order)[:2]])


def test_errors(client):
    with pytest.raises(cohere.NotFoundError, match="nobody"):
        client.rerank(model="nobody", query="a film", documents=FILMS)
    with pytest.raises(cohere.BadRequestError, match="documents"):
        client.rerank(model="reranking", query="a film", documents=[])
