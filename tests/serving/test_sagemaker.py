"""The two paths that SageMaker knows, at the local server."""

from checks import says


def test_ping(rest):
    assert rest.get("/ping").status_code == 200


def test_invocations_are_answered_by_the_route_of_their_fields(rest):
    messages = [{"role": "user", "content": "Hello?"}]
    for path, body in {
        "/v1/chat/completions": {"model": "nobody", "messages": messages},
        "/v1/completions": {"model": "nobody", "prompt": "A dog"},
        "/v1/embeddings": {"model": "nobody", "input": "A dog"},
        "/v2/rerank": {"model": "nobody", "query": "A dog", "documents": ["A dog runs."]},
        "/rerank": {"query": "A dog", "texts": ["A dog runs."]},
    }.items():
        answer, there = rest.post("/invocations", json=body), rest.post(path, json=body)
        assert answer.json() == there.json()
        assert answer.status_code == there.status_code
        assert "nobody" in answer.text or path == "/rerank", path


def test_invocations_that_no_route_takes(rest):
    for body in ({}, [], {"model": "nobody"}):
        answer = rest.post("/invocations", json=body)
        assert answer.status_code == 400
        assert says(answer.json()["error"], "messages ... documents")
