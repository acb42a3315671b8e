"""Jina's and Cohere's reranking."""

import httpx
import pytest

from keras_transformers.serving.protocol.errors import Code, RequestError

DOCUMENTS = ["ab", {"text": "abcd", "id": 7}, "abc"]


def test_version_1_has_the_fields_of_both(ask):
    answer = ask("/v1/rerank", {"query": "q", "documents": DOCUMENTS, "top_n": 2}).json()
    assert answer.pop("id")
    assert answer == {
        "object": "list",
        "model": "reranker",
        "results": [
            {"index": 1, "relevance_score": 0.4, "document": {"text": "abcd", "id": 7}},
            {"index": 2, "relevance_score": 0.3, "document": {"text": "abc"}},
        ],
        "usage": {"total_tokens": 6, "prompt_tokens": 6},
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
    }
    plain = {"query": "q", "documents": ["a"], "return_documents": False}
    assert ask("/v1/rerank", plain).json()["results"] == [{"index": 0, "relevance_score": 0.1}]


def test_version_2_is_coheres(ask, simple):
    body = {"model": "reranker@1", "query": "q", "documents": ["ab", "abc"], "priority": 0}
    answer = ask("/v2/rerank", body).json()
    assert answer["results"] == [
        {"index": 1, "relevance_score": 0.3},
        {"index": 0, "relevance_score": 0.2},
    ]
    assert answer["meta"]["api_version"] == {"version": "2"}
    simple.models["reranker"] = {
        name: signature
        for name, signature in simple.models["reranker"].items()
        if name != "tokenize"
    }
    assert "usage" not in ask("/v2/rerank", body).json()  # an export of version 1.0


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("/v1/rerank", {"documents": ["a"]}, 400, "query"),
        ("/v1/rerank", {"query": "q", "documents": []}, 400, "documents"),
        ("/v1/rerank", {"query": "q", "documents": ["a", 1]}, 400, "documents.1"),
        ("/v1/rerank", {"query": "q", "documents": ["a", {"title": "b"}]}, 400, "documents.1.text"),
        ("/v1/rerank", {"query": "q", "documents": ["a", ""]}, 400, "documents.1"),
        ("/v1/rerank", {"query": "q", "documents": ["a"] * 1000}, 413, "limit is 200"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "top_n": 0}, 400, "top_n"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "rank_fields": ["b"]}, 400, "rank_fie"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "max_chunks_per_doc": 3}, 400, "max_chu"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "truncation": False}, 400, "truncation"),
        ("/v2/rerank", {"query": "q", "documents": ["a"], "max_tokens_per_doc": 3}, 400, "max_tok"),
        ("/v2/rerank", {"query": "q", "documents": ["a"], "tools": []}, 400, "tools"),
        ("/v2/rerank", {"query": "q", "documents": ["a"], "model": "nobody"}, 404, "'nobody'"),
        ("/v2/rerank", {"query": "q", "documents": ["a"], "model": "judge"}, 400, "reranking"),
        ("/v2/rerank", b'{"query": "q", "documents": ["a"], "top_n": NaN}', 400, "top_n"),
        ("/v2/rerank", {"query": "q" * 2_000_000, "documents": ["a"]}, 413, "1000000 bytes"),
    ],
)
def test_a_refusal_names_the_field_in_the_shape_of_both(ask, path, body, status, part):
    response = ask(path, body)
    assert response.status_code == status
    assert set(response.json()) == {"message", "detail"}
    assert part in response.json()["message"]
    assert part in response.json()["detail"]


def test_a_backend_without_room_says_so(ask, simple):
    simple.error = RequestError(Code.RESOURCE_EXHAUSTED, "the reason")
    response = ask("/v2/rerank", {"model": "reranker", "query": "q", "documents": ["a"]})
    assert response.status_code == 429
    assert "retry-after" in response.headers


@pytest.mark.parametrize("model", ["reranking", "late_interaction"])
def test_answers_are_those_of_the_client(served, tiny_client, model):
    documents = ["bad", "a good film", "good"]
    (ranking,) = tiny_client.ask(["good"], [documents], model=model)
    (read,) = tiny_client.rows(["good"], [documents], model=model, signature_name="tokenize")
    for version in ("v1", "v2"):
        body = {"model": model, "query": "good", "documents": documents}
        answer = httpx.post(f"{served.url}/{version}/rerank", json=body, timeout=120).json()
        assert [result["index"] for result in answer["results"]] == ranking.order
        for result in answer["results"]:
            score = ranking.scores[result["index"]]
            assert result["relevance_score"] == pytest.approx(score, rel=1e-7)
        assert answer["usage"]["total_tokens"] == read["num_tokens"]
