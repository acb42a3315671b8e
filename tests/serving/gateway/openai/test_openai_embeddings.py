"""/v1/embeddings and /v1/models: shapes and refusals."""

import base64
import json

import numpy as np
import pytest

EMBEDDINGS = "/v1/embeddings"


def test_an_answer_has_openais_fields(ask, vector):
    answer = ask(EMBEDDINGS, model="embedder", input=["ab", "cde"])
    numbers = [0.1, -0.2, 0.3, 0.9273618]  # the shortest that read back as the same float32
    assert answer == {
        "object": "list",
        "model": "embedder",
        "data": [
            {"object": "embedding", "index": index, "embedding": numbers} for index in range(2)
        ],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    np.testing.assert_array_equal(np.float32(answer["data"][0]["embedding"]), vector)
    assert ask(EMBEDDINGS, model="embedder", input="ab")["data"] == answer["data"][:1]
    neutral = {"encoding_format": "float", "dimensions": None, "user": "u"}
    assert ask(EMBEDDINGS, model="embedder", input="ab", **neutral)["data"] == answer["data"][:1]


def test_base64_has_the_same_numbers(ask, vector):
    answer = ask(EMBEDDINGS, model="embedder", input="ab", encoding_format="base64")
    content = base64.b64decode(answer["data"][0]["embedding"])
    np.testing.assert_array_equal(np.frombuffer(content, "<f4"), vector)


def test_fewer_dimensions_keep_the_length(ask, vector):
    for number in (1, 3):
        answer = ask(EMBEDDINGS, model="embedder", input="ab", dimensions=number)
        cut = np.float32(answer["data"][0]["embedding"])
        first = vector[:number]
        np.testing.assert_allclose(np.linalg.norm(cut), np.linalg.norm(vector), rtol=1e-6)
        np.testing.assert_allclose(cut / cut[0], first / first[0], rtol=1e-6)
    answer = ask(EMBEDDINGS, model="embedder", input="ab", dimensions=4)
    np.testing.assert_array_equal(np.float32(answer["data"][0]["embedding"]), vector)


def test_many_texts_are_several_runs(ask, backend):
    answer = ask(EMBEDDINGS, model="embedder", input=["a"] * 1000)
    assert len(answer["data"]) == answer["usage"]["total_tokens"] == 1000
    sizes = [len(inputs["text"]) for name, inputs in backend.calls if name == "serving_default"]
    assert max(sizes) == 32
    assert sum(sizes) == 1000


def test_old_exports_answer_without_usage(ask):
    assert ask(EMBEDDINGS, model="old_embedder", input="ab")["usage"] is None


WRONG = [
    ("input", []),
    ("input", None),
    ("input", 7),
    ("input", [1, 2]),
    ("input", [[1, 2], [3]]),
    ("input.0", [None]),
    ("encoding_format", "int8"),
    ("dimensions", 0),
    ("dimensions", 5),
    ("dimensions", 2.5),
    ("dimensions", float("nan")),
    ("model", 7),
    ("inputs", "a"),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{f} {v!r:.20}" for f, v in WRONG])
def test_a_wrong_value_is_refused_by_its_field(gateway, backend, field, value):
    body = {"model": "embedder", "input": "a", field.partition(".")[0]: value}
    answer = gateway.post(EMBEDDINGS, content=json.dumps(body))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field), answer.text
    assert error["message"].startswith(field)
    assert not backend.calls


def test_token_ids_are_refused_with_a_remedy(refused):
    message, param, _ = refused(EMBEDDINGS, model="embedder", input=[[1, 2]])
    assert param == "input"
    assert "token ids" in message
    assert "check_embedding_ctx_length" in message


def test_more_texts_than_the_limit_are_refused(refused):
    message, param, _ = refused(EMBEDDINGS, 413, model="embedder", input=["a"] * 1025)
    assert param == "input"
    assert "1025" in message
    assert "1024" in message


def test_models_that_cannot(refused):
    assert refused(EMBEDDINGS, 404, model="nobody", input="a")[1:] == ("model", "model_not_found")
    message, param, _ = refused(EMBEDDINGS, model="talker", input="a")
    assert param == "model"
    assert "generation" in message


def test_models(gateway):
    answer = gateway.get("/v1/models").json()
    assert answer["object"] == "list"
    names = ["caller", "embedder", "old_embedder", "old_talker", "talker"]
    card = {"object": "model", "created": 0, "owned_by": "keras_transformers"}
    assert answer["data"] == [{"id": name, **card} for name in names]
    assert gateway.get("/v1/models/talker").json() == {"id": "talker", **card}
    answer = gateway.get("/v1/models/nobody")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
