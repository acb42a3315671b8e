"""Text Embeddings Inference's routes."""

import json

import httpx
import numpy as np
import pytest

from keras_transformers.serving.protocol.errors import Code, RequestError


def refused(response, status, kind="Validation"):
    """The message of a refusal in this API's shape."""
    assert response.status_code == status, response.text
    answer = response.json()
    assert set(answer) == {"error", "error_type"}
    assert answer["error_type"] == kind
    return answer["error"]


def test_vectors_are_scaled_unless_the_request_says_no(ask, simple):
    text, other = ask("/embed", {"inputs": ["ab", "abc"]}).json()
    np.testing.assert_allclose(text, np.array([2, 1, -2]) / 3, rtol=1e-6)
    assert np.linalg.norm(other) == pytest.approx(1)
    plain = {"inputs": "ab", "normalize": False}
    assert ask("/embed", plain).json() == [[2.0, 1.0, -2.0]]
    assert ask("/embed", plain | {"dimensions": 2}).json() == [[2.0, 1.0]]
    short = ask("/embed", {"inputs": "ab", "dimensions": 2}).json()
    np.testing.assert_allclose(short[0], np.array([2, 1]) / 5**0.5, rtol=1e-6)
    assert ask("/embed", plain | {"prompt_name": "query"}).json() == [[4.0, 1.0, -4.0]]
    assert ask("/models/embedder/embed", plain).json() == [[2.0, 1.0, -2.0]]
    assert ask("/models/embedder@1/embed", plain).json() == [[2.0, 1.0, -2.0]]
    neutral = {"truncate": True, "truncation_direction": "right", "prompt_name": None}
    assert ask("/embed", plain | neutral).json() == [[2.0, 1.0, -2.0]]


def test_many_texts_become_requests_as_large_as_those_of_the_client(ask, simple):
    answer = ask("/embed", {"inputs": ["a" * n for n in range(1, 101)], "normalize": False}).json()
    assert [row[0] for row in answer] == list(range(1, 101))
    assert sorted(len(inputs["text"]) for _, _, inputs in simple.calls) == [4, 32, 32, 32]


def test_texts_are_ordered_by_how_well_they_answer(ask):
    body = {"query": "q", "texts": ["ab", "abcd", "abc"]}
    assert ask("/rerank", body).json() == [
        {"index": 1, "score": 0.4},
        {"index": 2, "score": 0.3},
        {"index": 0, "score": 0.2},
    ]
    assert ask("/rerank", body | {"return_text": True}).json()[0] == {
        "index": 1,
        "text": "abcd",
        "score": 0.4,
    }


def test_labels_come_likeliest_first_in_the_form_of_the_request(ask):
    good = [{"score": 0.75, "label": "good"}, {"score": 0.25, "label": "bad"}]
    bad = [{"score": 0.9, "label": "bad"}, {"score": 0.1, "label": "good"}]
    one, pair = "/models/classifier/predict", "/models/judge/predict"
    assert ask(one, {"inputs": "good"}).json() == good
    assert ask(one, {"inputs": ["good"]}).json() == good
    assert ask(one, {"inputs": [["good"], ["no"]]}).json() == [good, bad]
    assert ask(pair, {"inputs": ["good", "no"]}).json() == good
    assert ask(pair, {"inputs": [["no", "good"]]}).json() == [bad]
    assert "reads 1" in refused(ask(one, {"inputs": ["good", "no"]}), 422)
    assert "row 1 has 1" in refused(ask(pair, {"inputs": [["a", "b"], ["a"]]}), 422)


def test_similarity_is_the_cosine(ask):
    body = {"inputs": {"source_sentence": "ab", "sentences": ["ab", "abcd"]}}
    same, other = ask("/similarity", body).json()
    assert same == pytest.approx(1)
    assert other == pytest.approx((8 + 1 + 8) / (3 * 33**0.5))
    prompted = body | {"parameters": {"prompt_name": "query"}}
    assert ask("/similarity", prompted).json()[0] == pytest.approx(1)


def test_tokens_say_which_of_them_stand_around_any_text(ask):
    assert ask("/tokenize", {"inputs": "a film"}).json() == [
        [
            {"id": 1, "text": "[CLS]", "special": True, "start": None, "stop": None},
            {"id": 11, "text": "a", "special": False, "start": None, "stop": None},
            {"id": 14, "text": "film", "special": False, "start": None, "stop": None},
            {"id": 2, "text": "[SEP]", "special": True, "start": None, "stop": None},
        ]
    ]
    rows = ask("/tokenize", {"inputs": ["a film", "b"], "add_special_tokens": False}).json()
    assert [[token["text"] for token in row] for row in rows] == [["a", "film"], ["b"]]


def test_info_says_what_a_model_is_for(ask):
    info = ask("/models/embedder/info").json()
    assert info["model_id"] == "embedder"
    assert info["model_type"] == {"embedding": {"pooling": None}}
    assert info["auto_truncate"] is True
    assert info["max_client_batch_size"] == 200
    kind = ask("/models/classifier/info").json()["model_type"]
    assert kind == {
        "classifier": {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    }
    assert "reranker" in ask("/models/reranker/info").json()["model_type"]
    assert "classifier, embedder" in refused(ask("/info"), 404)


def test_without_a_name_the_only_model_that_can_answers(ask, simple):
    names = refused(ask("/predict", {"inputs": "good"}), 404)
    assert "classifier, judge" in names
    assert "/models/NAME" in names
    del simple.models["judge"]
    assert ask("/predict", {"inputs": "good"}).status_code == 200
    simple.loading.add("reranker")  # does not matter to the others
    assert ask("/predict", {"inputs": "good"}).status_code == 200
    refused(ask("/rerank", {"query": "q", "texts": ["a"]}), 404)
    del simple.models["embedder"]
    assert "embedding" in refused(ask("/models/classifier/embed", {"inputs": "a"}), 424, "Backend")
    assert "'nobody'" in refused(ask("/models/nobody/embed", {"inputs": "a"}), 404)


def test_health_is_that_of_all_models(ask, simple):
    assert ask("/health").status_code == 200
    simple.loading.add("judge")
    refused(ask("/health"), 503, "Unhealthy")


LONE = '"\\ud83d"'


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/embed", {}, "inputs"),
        ("/embed", {"inputs": None}, "inputs"),
        ("/embed", {"inputs": []}, "inputs"),
        ("/embed", {"inputs": [1, 2]}, "inputs"),
        ("/embed", {"inputs": ["a", 2]}, "inputs.1"),
        ("/embed", {"inputs": "a", "input": "a"}, "input"),
        ("/embed", {"inputs": "a", "truncate": False}, "truncate"),
        ("/embed", {"inputs": "a", "truncation_direction": "Left"}, "truncation_direction"),
        ("/embed", {"inputs": "a", "normalize": "yes"}, "normalize"),
        ("/embed", {"inputs": "a", "dimensions": 0}, "dimensions"),
        ("/embed", {"inputs": "a", "dimensions": 4}, "dimensions"),
        ("/embed", {"inputs": "a", "prompt_name": "passage"}, "prompt_name"),
        ("/embed", {"inputs": "a", "prompt_name": "tokenize"}, "prompt_name"),
        ("/embed", b'{"inputs": "a", "dimensions": NaN}', "dimensions"),
        ("/embed", b'{"inputs": [' + LONE.encode() + b"]}", "inputs.0"),
        ("/embed", b"[" * 100_000, "nested"),
        ("/embed", b"{", "JSON"),
        ("/embed", b'{"inputs": [1' + b",1" * 400_000 + b"]}", "inputs"),
        ("/embed", json.dumps({f"f{n}": 1 for n in range(50_000)}).encode(), "50000 fields"),
        ("/rerank", {"query": "q"}, "texts"),
        ("/rerank", {"query": "q", "texts": []}, "texts"),
        ("/rerank", {"query": "q", "texts": ["a", ""]}, "texts.1"),
        ("/rerank", {"query": "q", "texts": ["a"], "raw_scores": True}, "raw_scores"),
        ("/models/judge/predict", {"inputs": []}, "inputs"),
        ("/models/judge/predict", {"inputs": [["a", "b", "c"]]}, "inputs.0"),
        ("/models/judge/predict", {"inputs": {"a": "b"}}, "inputs"),
        ("/models/judge/predict", {"inputs": ["a", "b"], "raw_scores": True}, "raw_scores"),
        ("/similarity", {"inputs": {"sentences": ["a"]}}, "inputs.source_sentence"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "inputs.sentences"),
        (
            "/similarity",
            {
                "inputs": {"source_sentence": "a", "sentences": ["a"]},
                "parameters": {"prompt_name": "x"},
            },
            "parameters.prompt_name",
        ),
        ("/tokenize", {"inputs": "a", "prompt_name": "query"}, "prompt_name"),
    ],
)
def test_a_refusal_names_the_field(ask, simple, path, body, field):
    message = refused(ask(path, body), 422)
    assert field in message
    assert len(message) < 1100
    assert not simple.calls


def test_too_much_is_refused_with_the_limit(ask):
    assert "limit is 200" in refused(ask("/embed", {"inputs": ["a"] * 1000}), 413)
    assert "1000000 bytes" in refused(ask("/embed", {"inputs": "a" * 10_000_000}), 413)
    body = {"query": "q", "texts": ["a"] * 201}
    assert "texts has 201" in refused(ask("/rerank", body), 413)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (Code.RESOURCE_EXHAUSTED, 429, "Overloaded"),
        (Code.UNAVAILABLE, 503, "Unhealthy"),
        (Code.DEADLINE_EXCEEDED, 424, "Backend"),
        (Code.INTERNAL, 424, "Backend"),
    ],
)
def test_a_backend_that_fails_is_told_apart(ask, simple, code, status, kind):
    simple.error = RequestError(code, "the reason")
    response = ask("/embed", {"inputs": "a"})
    assert refused(response, status, kind) == "the reason"
    assert ("retry-after" in response.headers) == (status in (429, 503))


def test_a_client_that_leaves_abandons_its_request(ask, arithmetic, simple):
    simple.holding = True
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{arithmetic.url}/embed", json={"inputs": "a"}, timeout=0.3)
    assert simple.abandoned.wait(10)


def float32(values):
    return np.array(values, "float32").tolist()


@pytest.mark.one_case
def test_answers_are_those_of_the_client(served, tiny_client):
    texts = ["good film", "a very bad film!", ""]

    def post(path, body):
        response = httpx.post(served.url + path, json=body, timeout=120)
        assert response.status_code == 200, response.text
        return response.json()

    vectors = [row.vector for row in tiny_client.ask(texts, model="embedding")]
    assert float32(post("/embed", {"inputs": texts})) == vectors
    for embedding, weights in zip(
        tiny_client.ask(texts, model="sparse_embedding"),
        post("/embed_sparse", {"inputs": texts}),
        strict=True,
    ):
        assert [weight["index"] for weight in weights] == embedding.indices
        assert float32([weight["value"] for weight in weights]) == embedding.weights
    for model in ("reranking", "late_interaction"):
        (ranking,) = tiny_client.ask(["good"], [texts[:2]], model=model)
        ranks = post(f"/models/{model}/rerank", {"query": "good", "texts": texts[:2]})
        assert [rank["index"] for rank in ranks] == ranking.order
        scores = [ranking.scores[index] for index in ranking.order]
        assert float32([rank["score"] for rank in ranks]) == scores
    labelled = tiny_client.ask(texts, model="classification")
    predicted = post("/predict", {"inputs": [[text] for text in texts]})
    for row, answer in zip(predicted, labelled, strict=True):
        assert row[0]["label"] == answer.label
        assert float32([one["score"] for one in row]) == sorted(answer.probabilities, reverse=True)
    read = tiny_client.rows(texts, model="embedding", signature_name="tokenize")
    tokenized = post("/models/embedding/tokenize", {"inputs": texts})
    assert [[token["id"] for token in row] for row in tokenized] == [
        row["token_ids"][: row["num_tokens"]] for row in read
    ]
    assert [token["special"] for token in tokenized[0]] == [True, False, False, True]
    info = httpx.get(f"{served.url}/models/classification/info").json()
    assert info["model_type"]["classifier"]["id2label"] == {"0": "negative", "1": "positive"}
    info = httpx.get(f"{served.url}/models/sparse_embedding/info").json()
    assert info["model_type"] == {"embedding": {"pooling": "splade"}}
    assert (
        "reranker" in httpx.get(f"{served.url}/models/late_interaction/info").json()["model_type"]
    )
