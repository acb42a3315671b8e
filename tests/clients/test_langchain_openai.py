"""The package `langchain-openai`, unmodified."""

import numpy as np
import pytest

KEY = "a key that no server checks"

langchain = pytest.importorskip(
    "langchain_openai", reason="needs langchain-openai: make test-clients"
)

FILMS = ["a good film", "a very long film"]


@pytest.fixture(scope="module")
def where(served):
    return {"base_url": f"{served.url}/v1", "api_key": KEY, "max_retries": 0}


def test_chat(where, served):
    chat = langchain.ChatOpenAI(model="talker", **where)
    answer = chat.invoke([("system", "Be brief."), ("user", "Hello?")])
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
    ]
    expected = served.client.chat(messages, model="talker")
    assert answer.content == expected.text
    assert answer.usage_metadata["output_tokens"] == expected.num_new_tokens
    assert answer.usage_metadata["input_tokens"] == expected.num_prompt_tokens
    pieces = chat.stream([("system", "Be brief."), ("user", "Hello?")])
    assert "".join(piece.content for piece in pieces) == expected.text


def test_several_conversations(where, served):
    questions = ["Hello?", "Who is there?", "Why?"]
    chat = langchain.ChatOpenAI(model="talker", **where)
    answers = [answer.content for answer in chat.batch(questions)]
    conversations = [[{"role": "user", "content": text}] for text in questions]
    expected = served.client.chat(conversations, model="talker")
    assert answers == [answer.text for answer in expected]


def test_completions(where):
    model = langchain.OpenAI(model="generation", max_tokens=5, seed=3, **where)
    assert model.invoke("a small dog") == "".join(model.stream("a small dog"))


def test_embeddings(where, served):
    # Otherwise it sends token ids of OpenAI's own tokenizer.
    embeddings = langchain.OpenAIEmbeddings(
        model="embedding", check_embedding_ctx_length=False, **where
    )
    expected = served.client.predict({"text": FILMS}, model="embedding")["embedding"]
    vectors = np.asarray(embeddings.embed_documents(FILMS), np.float32)
    np.testing.assert_array_equal(vectors, expected)
    (alone,) = served.client.predict({"text": FILMS[:1]}, model="embedding")["embedding"]
    np.testing.assert_array_equal(np.float32(embeddings.embed_query(FILMS[0])), alone)
