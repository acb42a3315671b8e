"""The package `litellm`, unmodified."""

import os

import numpy as np
import pytest

KEY = "a key that no server checks"

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it downloads prices otherwise
litellm = pytest.importorskip("litellm", reason="needs litellm: make test-clients")

HELLO = [{"role": "user", "content": "Hello, how are you?"}]
FILMS = ["a good film", "a very long film"]


@pytest.fixture
def where(served):
    return {"api_base": f"{served.url}/v1", "api_key": KEY, "max_retries": 0}


def test_chat(where, served):
    answer = litellm.completion("openai/talker", HELLO, **where)
    expected = served.client.chat(HELLO, model="talker")
    assert answer.choices[0].message.content == expected.text
    assert answer.usage.completion_tokens == expected.num_new_tokens
    chunks = list(litellm.completion("openai/talker", HELLO, stream=True, **where))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected.text


def test_completions(where, served):
    options = {"max_tokens": 4, "seed": 3}
    answer = litellm.text_completion(
        "a small dog", "text-completion-openai/generation", **options, **where
    )
    again = litellm.text_completion(
        "a small dog", "text-completion-openai/generation", **options, **where
    )
    assert answer.choices[0].text == again.choices[0].text
    assert answer.usage.completion_tokens <= 4


def test_embeddings(where, served):
    expected = served.client.predict({"text": FILMS}, model="embedding")["embedding"]
    answer = litellm.embedding("openai/embedding", FILMS, **where)
    vectors = np.asarray([each["embedding"] for each in answer.data], np.float32)
    np.testing.assert_array_equal(vectors, expected)


@pytest.mark.parametrize(
    "provider", ["cohere", "jina_ai", "hosted_vllm"]
)  # /v2/rerank, /v1/rerank for the others
def test_reranking(provider, served):
    url = f"{served.url}/v1" if provider == "hosted_vllm" else served.url
    answer = litellm.rerank(
        f"{provider}/reranking", "a film", FILMS, top_n=2, api_base=url, api_key=KEY
    )
    (expected,) = served.client.ask(["a film"], [FILMS], model="reranking")
    assert [each["index"] for each in answer.results] == list(expected.order)
    scores = np.float32([each["relevance_score"] for each in answer.results])
    np.testing.assert_array_equal(scores, np.float32(expected.scores)[list(expected.order)])


def test_an_error(where):
    with pytest.raises(litellm.NotFoundError, match="nobody"):
        litellm.completion("openai/nobody", HELLO, **where)
