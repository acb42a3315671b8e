"""OpenAI's routes give the answers of `Client`: in the local server, and in front of one."""

import base64
import json

import httpx
import numpy as np
import pytest
import tiny

from keras_transformers.serving import Client, Limits, ModelSettings, Server
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello, how are you?"},
]
FILMS = ["a good film", "a very long film", ""]
NAMES = ("embedding", "talker")


@pytest.fixture(scope="module")
def server():
    exports = [tiny.exported("embedding"), tiny.exported_talker()]
    settings = [ModelSettings(export.parent.name, export.parent) for export in exports]
    limits = Limits(timeout_s=120.0, max_new_tokens=100)
    with Server(settings, rest_port=0, grpc_port=0, limits=limits) as running:
        assert running.wait_until_loaded(120)
        yield running


@pytest.fixture(scope="module")
def client(server):
    with Client(f"http://127.0.0.1:{server.rest_port}", timeout_s=120) as client:
        yield client


@pytest.fixture(scope="module", params=["serve", "gateway by REST", "gateway by gRPC"])
def openai(request, server):
    """An HTTP client of each place that has the routes."""
    if request.param == "serve":
        with httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", timeout=120) as http:
            yield http
        return
    by_rest = request.param.endswith("REST")
    target = f"http://127.0.0.1:{server.rest_port}" if by_rest else f"127.0.0.1:{server.grpc_port}"
    names = None if by_rest else dict(zip(NAMES, NAMES, strict=True))
    backend = Servers([(Replicas([connect(Target.parse(target), ClientTls())]), names)])
    with (
        Gateway(backend, port=0, limits=Limits(timeout_s=120.0)) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=120) as http,
    ):
        yield http


def post(openai, path, **body):
    answer = openai.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(openai, path, **body):
    """The chunks of a stream."""
    with openai.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return list(map(json.loads, lines))


def test_models(openai):
    assert [card["id"] for card in openai.get("/v1/models").json()["data"]] == list(NAMES)
    assert openai.get("/v1/models/talker").json()["id"] == "talker"
    assert openai.get("/v1/models/nobody").status_code == 404


def test_chat(openai, client):
    expected = client.chat(HELLO, model="talker")
    answer = post(openai, CHAT, model="talker", messages=HELLO)
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == expected.text
    assert choice["finish_reason"] == ("stop" if expected.finished else "length")
    assert answer["usage"] == {
        "prompt_tokens": expected.num_prompt_tokens,
        "completion_tokens": expected.num_new_tokens,
        "total_tokens": expected.num_prompt_tokens + expected.num_new_tokens,
    }


def test_options_of_chat(openai, client):
    options = {"temperature": 1.5, "top_p": 0.9, "repetition_penalty": 1.3}
    answer = post(
        openai, CHAT, model="talker", messages=HELLO, max_tokens=9, n=3, seed=5, **options
    )
    expected = [
        client.chat(HELLO, model="talker", max_length=9, seed=seed, **options).text
        for seed in (5, 6, 7)
    ]
    assert [choice["message"]["content"] for choice in answer["choices"]] == expected
    assert len(set(expected)) == 3
    whole = client.chat(HELLO, model="talker").text
    answer = post(openai, CHAT, model="talker", messages=HELLO, temperature=0, stop=whole[3:5])
    assert answer["choices"][0]["message"]["content"] == whole[: whole.index(whole[3:5])]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_stream_of_chat(openai, client):
    body = {"model": "talker", "messages": HELLO, "stream_options": {"include_usage": True}}
    *chunks, last = streamed(openai, CHAT, **body)
    expected = client.chat(HELLO, model="talker")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == expected.text
    reason = "stop" if expected.finished else "length"
    assert chunks[-1]["choices"][0]["finish_reason"] == reason
    assert last["usage"]["completion_tokens"] == expected.num_new_tokens


def test_streams_of_several_texts(openai):
    body = {"model": "talker", "prompt": ["a small dog", "two dogs"], "n": 2, "seed": 3}
    body["temperature"] = 1.25
    expected = [choice["text"] for choice in post(openai, COMPLETIONS, **body)["choices"]]
    texts = [""] * 4
    for chunk in streamed(openai, COMPLETIONS, **body):
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == expected


@pytest.mark.slow  # the first answers of these signatures
def test_tokens(openai, client):
    expected = client.chat(HELLO, model="talker")
    body = {"model": "talker", "messages": HELLO, "logprobs": True}
    (choice,) = post(openai, CHAT, **body)["choices"]
    pieces = [chunk["choices"][0]["logprobs"] for chunk in streamed(openai, CHAT, **body)]
    for tokens in (
        choice["logprobs"]["content"],
        [token for piece in pieces if piece for token in piece["content"]],
    ):
        assert len(tokens) == expected.num_new_tokens
        joined = b"".join(bytes(token["bytes"]) for token in tokens)
        assert joined.decode("utf-8", "replace").startswith(expected.text)
        total = np.float32(sum(np.float32(token["logprob"]) for token in tokens))
        np.testing.assert_allclose(total, expected.log_probability, rtol=1e-5)


@pytest.mark.slow
def test_one_of_some_strings(openai, client):
    choices = ["yes", "no", "perhaps"]
    columns = {"roles": [[m["role"] for m in HELLO]], "texts": [[m["content"] for m in HELLO]]}
    expected = client.predict(
        {**columns, "choices": [choices]}, model="talker", signature_name="chat_choose"
    )
    body = {"model": "talker", "messages": HELLO, "structured_outputs": {"choice": choices}}
    answer = post(openai, CHAT, **body, logprobs=True, top_logprobs=3)
    (choice,) = answer["choices"]
    assert choice["message"]["content"].encode() == expected["text"][0]
    (token,) = choice["logprobs"]["content"]
    found = {other["token"]: np.exp(other["logprob"]) for other in token["top_logprobs"]}
    np.testing.assert_allclose(
        [found[text] for text in choices], expected["probabilities"][0], rtol=1e-5
    )
    assert answer["usage"]["completion_tokens"] == expected["num_new_tokens"][0]
    chunks = streamed(openai, CHAT, **body)
    assert chunks[1]["choices"][0]["delta"]["content"] == choice["message"]["content"]
    error = openai.post(CHAT, json=body | {"structured_outputs": {"choice": ["a", "a"]}}).json()
    assert error["error"]["param"] == "structured_outputs.choice"


def test_completions_are_those_of_complete(openai, client):
    prompts, options = ["a small dog", "two dogs", ""], {"temperature": 1.25, "top_p": 0.75}
    answer = post(openai, COMPLETIONS, model="talker", prompt=prompts, seed=3, **options)
    inputs = {"prompt": prompts, "stop": [[""]] * 3, "max_length": [12] * 3, "top_k": [0] * 3}
    inputs |= {name: [value] * 3 for name, value in options.items()}
    inputs |= {"seed": [3] * 3, "repetition_penalty": [1.0] * 3}
    expected = client.predict(inputs, model="talker", signature_name="complete")
    assert [choice["text"].encode() for choice in answer["choices"]] == expected["text"].tolist()
    assert answer["usage"]["completion_tokens"] == expected["num_new_tokens"].sum()
    assert answer["usage"]["prompt_tokens"] == expected["num_prompt_tokens"].sum()


def test_embeddings_are_the_same_numbers(openai, client):
    expected = client.predict({"text": FILMS}, model="embedding")["embedding"]
    counts = client.predict({"text": FILMS}, model="embedding", signature_name="tokenize")
    for encoding in ("float", "base64"):
        answer = post(
            openai, "/v1/embeddings", model="embedding", input=FILMS, encoding_format=encoding
        )
        vectors = [each["embedding"] for each in answer["data"]]
        if encoding == "base64":
            vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
        np.testing.assert_array_equal(np.asarray(vectors, np.float32), expected)
        assert answer["usage"]["prompt_tokens"] == counts["num_tokens"].sum()
    answer = post(openai, "/v1/embeddings", model="embedding", input=FILMS, dimensions=4)
    vectors = np.asarray([each["embedding"] for each in answer["data"]], np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


REFUSED = [
    ("messages", {"messages": HELLO + HELLO[:1]}),
    ("messages", {"messages": [{"role": "assistant", "content": "Hi"}]}),
    ("messages", {"messages": [{"role": "user", "content": "a" * 700}]}),
    ("top_k", {"top_k": 100_000}),
    ("max_tokens", {"max_tokens": 101}),
    ("max_completion_tokens", {"max_completion_tokens": 101}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("field", "body"), REFUSED, ids=[str(b)[:40] for _, b in REFUSED])
def test_what_the_model_refuses_has_its_field(openai, field, body, stream):
    body = {"model": "talker", "messages": HELLO, **body, "stream": stream}
    answer = openai.post(CHAT, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == field
    assert "node" not in error["message"]
