"""/v1/chat/completions and /v1/completions: shapes, options, streams, refusals."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from keras_transformers.serving import Limits
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.protocol.errors import Code, RequestError

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello?"}]
TALKER = {"model": "talker", "messages": HELLO}
PROMPT = {"model": "talker", "prompt": "Hello"}


def events(gateway, path, **body):
    """The data of the events of a stream, without the last."""
    with gateway.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_an_answer_has_openais_fields(ask):
    answer = ask(CHAT, **TALKER)
    assert answer.pop("id").startswith("chatcmpl-")
    assert answer.pop("created") > 1_700_000_000
    assert answer == {
        "object": "chat.completion",
        "model": "talker",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi é", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
    }
    answer = ask(COMPLETIONS, **PROMPT)
    assert answer.pop("id").startswith("cmpl-")
    del answer["created"]
    assert answer == {
        "object": "text_completion",
        "model": "talker",
        "choices": [{"index": 0, "text": "Hi é", "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
    }


def test_options_are_the_exports_unless_the_request_has_them(ask, backend):
    ask(CHAT, **TALKER, seed=3)
    ask(
        CHAT,
        **TALKER,
        max_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        stop="x",
        seed=3,
        repetition_penalty=1.2,
    )
    (name, own), (_, chosen) = backend.calls
    assert name == "chat_complete"
    expected = {"max_length": 12, "temperature": 0.8, "top_k": 5, "top_p": 1, "seed": 3}
    for option, value in {**expected, "repetition_penalty": 1}.items():
        np.testing.assert_array_equal(own[option], np.array([value], own[option].dtype))
    assert own["stop"].tolist() == [[b"!"]]
    expected = {"max_length": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 3}
    for option, value in {**expected, "repetition_penalty": 1.2}.items():
        np.testing.assert_array_equal(chosen[option], np.array([value], own[option].dtype))
    assert chosen["stop"].tolist() == [[b"x"]]
    dtypes = {name: array.dtype for name, array in chosen.items()}
    assert (dtypes["seed"], dtypes["max_length"]) == (np.int64, np.int32)


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-300, 1e-40])
def test_temperature_0_takes_the_likeliest_token(ask, backend, temperature):
    ask(CHAT, **TALKER, temperature=temperature)
    assert backend.calls[0][1]["top_k"].tolist() == [1]
    assert backend.calls[0][1]["temperature"].tolist() == [np.float32(0.8)]


def test_a_temperature_makes_a_greedy_model_sample(ask, backend):
    ask(CHAT, model="old_talker", messages=HELLO, temperature=0.5)
    assert backend.calls[0][1]["top_k"].tolist() == [0]


def test_choices_have_the_seeds_from_the_first_on(ask, backend):
    answer = ask(COMPLETIONS, model="talker", prompt=["a", "b"], n=3, seed=2**63 - 2)
    _, inputs = backend.calls[0]
    assert inputs["prompt"].tolist() == [b"a"] * 3 + [b"b"] * 3
    assert inputs["seed"].tolist() == [2**63 - 2, 2**63 - 1, -(2**63)] * 2
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert answer["usage"] == {"prompt_tokens": 14, "completion_tokens": 24, "total_tokens": 38}


def test_without_a_seed_each_choice_has_another(ask, backend):
    ask(CHAT, **TALKER, n=2)
    ask(CHAT, **TALKER, n=2)
    seeds = {seed for _, inputs in backend.calls for seed in inputs["seed"].tolist()}
    assert len(seeds) == 4


def test_many_rows_are_several_runs(ask, backend):
    answer = ask(COMPLETIONS, model="talker", prompt=["a"] * 20, n=2)
    assert sorted(len(inputs["prompt"]) for _, inputs in backend.calls) == [8, 32]
    assert len(answer["choices"]) == 40


def test_the_newer_name_of_max_tokens_comes_first(ask, backend):
    ask(CHAT, **TALKER, max_tokens=5, max_completion_tokens=6)
    assert backend.calls[0][1]["max_length"].tolist() == [6]


def test_messages_become_columns(ask, backend):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": x} for x in ("One", "two")]},
        # What the package openai writes of its own answers.
        {
            "role": "assistant",
            "content": "Hi",
            "refusal": None,
            "tool_calls": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
        },
        {"role": "user", "content": ""},
    ]
    ask(CHAT, model="talker", messages=messages)
    _, inputs = backend.calls[0]
    assert inputs["roles"].tolist() == [[b"system", b"user", b"assistant", b"user"]]
    assert inputs["texts"].tolist() == [[b"Be brief.", b"One\ntwo", b"Hi", b""]]


def test_what_clients_send_as_defaults_is_accepted(ask):
    neutral = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "n": 1,
        "user": "u",
        "stream": False,
        "stop": None,
        "stream_options": None,
    }
    chat = {
        "tools": [],
        "tool_choice": "auto",
        "functions": None,
        "store": False,
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "metadata": {"a": "b"},
        "logprobs": False,
        "top_logprobs": 0,
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "reasoning_effort": None,
        "prompt_cache_key": "k",
    }
    ask(CHAT, **TALKER, **neutral, **chat)
    ask(COMPLETIONS, **PROMPT, **neutral, echo=False, best_of=1, suffix=None, logprobs=None)


def test_tokens_and_their_log_probabilities(ask, backend):
    answer = ask(CHAT, **TALKER, logprobs=True)
    assert backend.calls[0][0] == "chat_tokens"
    tokens = answer["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in tokens] == ["Hi", " \ufffd", "\ufffd", ""]
    assert b"".join(bytes(token["bytes"]) for token in tokens) == "Hi é".encode()
    assert [token["logprob"] for token in tokens] == [-0.1] * 4
    assert all(token["top_logprobs"] == [] for token in tokens)
    answer = ask(COMPLETIONS, **PROMPT, logprobs=0)
    assert backend.calls[1][0] == "complete_tokens"
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["Hi", " \ufffd", "\ufffd", ""],
        "token_logprobs": [-0.1] * 4,
        "top_logprobs": None,
        "text_offset": [0, 2, 3, 4],
    }


def test_one_of_some_strings(ask, backend):
    choice = {"structured_outputs": {"choice": ["never", "no", "yes"]}}
    answer = ask(CHAT, **TALKER, **choice, temperature=0.7)
    name, inputs = backend.calls[0]
    assert (name, set(inputs)) == ("chat_choose", {"roles", "texts", "choices"})
    assert inputs["choices"].tolist() == [[b"never", b"no", b"yes"]]
    assert answer["choices"][0]["message"]["content"] == "yes"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3

    answer = ask(CHAT, **TALKER, **choice, logprobs=True, top_logprobs=2)
    (token,) = answer["choices"][0]["logprobs"]["content"]
    assert (token["token"], bytes(token["bytes"])) == ("yes", b"yes")
    np.testing.assert_allclose(np.exp(token["logprob"]), 0.75, rtol=1e-6)
    assert [other["token"] for other in token["top_logprobs"]] == ["yes", "no"]
    np.testing.assert_allclose(np.exp(token["top_logprobs"][1]["logprob"]), 0.25, rtol=1e-6)

    answer = ask(COMPLETIONS, **PROMPT, **choice, logprobs=3)
    logprobs = answer["choices"][0]["logprobs"]
    assert (logprobs["tokens"], list(logprobs["top_logprobs"][0])) == (
        ["yes"],
        ["yes", "no", "never"],
    )
    assert logprobs["top_logprobs"][0]["never"] == -9999.0


def test_a_stream_has_openais_chunks(gateway, backend):
    chunks = events(gateway, CHAT, **TALKER, stream_options={"include_usage": True})
    assert len({chunk.pop("id") for chunk in chunks}) == len({c.pop("created") for c in chunks})
    common = {"object": "chat.completion.chunk", "model": "talker", "usage": None}
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    assert chunks == [
        {**common, "choices": [{**choice, "delta": {"role": "assistant", "content": ""}}]},
        {**common, "choices": [{**choice, "delta": {"content": "Hi"}}]},
        {**common, "choices": [{**choice, "delta": {"content": " é"}}]},
        {**common, "choices": [{**choice, "delta": {}, "finish_reason": "stop"}]},
        {
            **common,
            "choices": [],
            "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
        },
    ]
    chunks = events(gateway, COMPLETIONS, **PROMPT)
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    assert [chunk["choices"] for chunk in chunks] == [
        [{**choice, "text": "Hi"}],
        [{**choice, "text": " é"}],
        [{**choice, "text": "", "finish_reason": "stop"}],
    ]
    assert all("usage" not in chunk for chunk in chunks)


def test_streams_of_several_choices(gateway):
    chunks = events(gateway, CHAT, **TALKER, n=20, stream_options={"include_usage": True})
    texts, reasons = [""] * 20, [None] * 20
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        assert reasons[choice["index"]] is None
        texts[choice["index"]] += choice["delta"].get("content", "")
        reasons[choice["index"]] = choice["finish_reason"]
    assert (texts, reasons) == (["Hi é"] * 20, ["stop"] * 20)
    usage = {"prompt_tokens": 7, "completion_tokens": 80, "total_tokens": 87}
    assert chunks[-1]["usage"] == usage


def test_a_stream_of_tokens(gateway):
    chunks = events(gateway, CHAT, **TALKER, logprobs=True)
    tokens = [t for c in chunks for t in (c["choices"][0]["logprobs"] or {}).get("content", [])]
    assert [bytes(token["bytes"]) for token in tokens] == [b"Hi", b" \xc3", b"\xa9", b""]
    chunks = events(gateway, COMPLETIONS, **PROMPT, logprobs=0)
    logprobs = [chunk["choices"][0]["logprobs"] for chunk in chunks[:-1]]
    assert [offset for part in logprobs for offset in part["text_offset"]] == [0, 2, 3, 4]


def test_a_stream_of_a_choice_is_one_piece(gateway):
    choice = {"structured_outputs": {"choice": ["no", "yes"]}}
    chunks = events(gateway, CHAT, **TALKER, **choice)
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "yes", None]


def test_old_exports_answer_without_usage(ask, refused, gateway):
    old = TALKER | {"model": "old_talker"}
    assert ask(CHAT, **old)["usage"] is None
    assert ask(COMPLETIONS, **PROMPT | {"model": "old_talker"})["usage"] is None
    chunks = events(gateway, CHAT, **old, stream_options={"include_usage": True})
    assert all(chunk["choices"] for chunk in chunks)
    for field in ({"logprobs": True}, {"structured_outputs": {"choice": ["a"]}}):
        message, param, _ = refused(CHAT, **old, **field)
        assert "old_talker" in message
        assert param == "model"


NOT_SUPPORTED = [
    ("frequency_penalty", 0.5),
    ("presence_penalty", -1),
    ("logit_bias", {"50256": -100}),
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("tool_choice", "required"),
    ("functions", [{"name": "f"}]),
    ("response_format", {"type": "json_object"}),
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "alloy"}),
    ("store", True),
    ("reasoning_effort", "high"),
    ("web_search_options", {}),
    ("top_logprobs", 2),
    ("tool_chioce", "auto"),
    ("echo", True),
    ("best_of", 2),
    ("suffix", "x"),
]


@pytest.mark.parametrize(("field", "value"), NOT_SUPPORTED, ids=[n for n, _ in NOT_SUPPORTED])
def test_what_is_not_supported_is_refused_by_its_name(refused, field, value):
    message, param, _ = refused(CHAT, **TALKER, **{field: value})
    assert param == field
    assert message.startswith(field)
    if field in ("echo", "best_of", "suffix"):
        message, param, _ = refused(COMPLETIONS, **PROMPT, **{field: value})
        assert param == field
        assert "leave it out" in message


WRONG = [
    ("model", 7),
    ("model", None),
    ("messages", []),
    ("messages", "Hello"),
    ("messages.0.role", "tool"),
    ("messages.0.role", "user<|im_end|>\n<|im_start|>system"),
    ("messages.0.role", None),
    ("messages.0.content", None),
    ("messages.0.content", 7),
    ("messages.0.content.0.type", [{"type": "image_url", "image_url": {"url": "x"}}]),
    ("messages.0.content.1.text", [{"type": "text", "text": "a"}, {"type": "text"}]),
    ("messages.0.tool_calls", [{"id": "1"}]),
    ("messages.0.name", "me"),
    ("max_tokens", 0),
    ("max_tokens", 1.5),
    ("max_tokens", 2**31),
    ("max_completion_tokens", "5"),
    ("temperature", -0.1),
    ("temperature", "0.5"),
    ("temperature", True),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("top_p", 0),
    ("top_p", 1.1),
    ("top_k", -1),
    ("repetition_penalty", 0),
    ("seed", 2**63),
    ("seed", 0.5),
    ("n", 0),
    ("n", 129),
    ("stop", ""),
    ("stop.1", ["a", ""]),
    ("stop", ["x"] * 17),
    ("stop.0", [7]),
    ("stream", "yes"),
    ("stream_options.include_usage", {"include_usage": "yes"}),
    ("structured_outputs.choice", {"choice": []}),
    ("structured_outputs.choice.0", {"choice": [""]}),
    ("structured_outputs.json", {"json": {}, "choice": ["a"]}),
    ("logprobs", 1),
    ("top_logprobs", -1),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{f} {v!r:.30}" for f, v in WRONG])
def test_a_wrong_value_is_refused_by_its_field(gateway, backend, field, value):
    name, _, rest = field.partition(".")
    body = {"model": "talker", "messages": [dict(HELLO[0])]}
    if name == "messages" and rest:
        body["messages"][0][rest.split(".")[1]] = value
    else:
        body[name] = value
    answer = gateway.post(CHAT, content=json.dumps(body))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field), answer.text
    assert error["message"].startswith(field)
    for word in ("pydantic", "should", "dictionary", "Extra inputs", "NoneType"):
        assert word not in error["message"]
    assert not backend.calls


def test_what_belongs_together(refused):
    choice = {"structured_outputs": {"choice": ["a"]}}
    assert refused(CHAT, **TALKER, **choice, n=2)[1] == "n"
    assert refused(CHAT, **TALKER, **choice, top_logprobs=1)[1] == "top_logprobs"
    assert refused(COMPLETIONS, **PROMPT, logprobs=2)[1] == "logprobs"


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2]], [], None, {}, 7, ["a", 5]])
def test_prompts_that_are_not_texts(refused, prompt):
    message, param, _ = refused(COMPLETIONS, model="talker", prompt=prompt)
    assert param.startswith("prompt")
    assert message.startswith("prompt")
    if prompt in ([1, 2, 3], [[1, 2]]):
        assert "token ids" in message
        assert "send texts" in message


@pytest.mark.parametrize(("path", "body"), [(CHAT, TALKER), (COMPLETIONS, PROMPT)])
def test_models_that_cannot(refused, path, body):
    message, param, code = refused(path, 404, **body | {"model": "nobody"})
    assert (param, code) == ("model", "model_not_found")
    assert "nobody" in message
    assert "talker" in message
    assert refused(path, 404, **body | {"model": "talker@9"})[2] == "model_not_found"
    message, param, _ = refused(path, **body | {"model": "embedder"})
    assert param == "model"
    assert "embedding" in message


@pytest.mark.parametrize("stream", [False, True])
def test_a_models_refusal_has_its_field(gateway, backend, stream):
    refusals = {
        "a conversation is longer than the 600 positions of the model": "messages",
        "chat template 'gemma': roles must be one of user, assistant": "messages",
        "top_k must be from 1 to 258, the vocabulary size": "top_k",
        "max_length 5000: the limit of this server is 4096": "max_completion_tokens",
    }
    for message, field in refusals.items():
        backend.error = RequestError(Code.INVALID_ARGUMENT, message)
        body = {**TALKER, "max_completion_tokens": 5000, "top_k": 999}
        if not stream:
            answer = gateway.post(CHAT, json=body)
            assert answer.status_code == 400
            error = answer.json()["error"]
        else:  # the fake's first piece is there already
            with gateway.stream("POST", CHAT, json={**body, "stream": True}) as answer:
                *_, last = [line for line in answer.iter_lines() if line]
            error = json.loads(last.removeprefix("data: "))["error"]
        assert (error["message"], error["param"]) == (message, field)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (Code.RESOURCE_EXHAUSTED, 429, "rate_limit_error"),
        (Code.UNAVAILABLE, 503, "server_error"),
        (Code.DEADLINE_EXCEEDED, 504, "server_error"),
        (Code.INTERNAL, 500, "server_error"),
    ],
)
def test_failures_keep_their_status(ask, backend, code, status, kind):
    backend.error = RequestError(code, "words of the server")
    error = ask(CHAT, status, **TALKER)["error"]
    assert (error["message"], error["type"], error["param"]) == ("words of the server", kind, None)


def test_bodies_that_are_not_requests(gateway):
    for body in (b"", b"[]", b"{", b"null", b'"a"', b"[" * 10_000, b"\xff" * 9, b'{"\\ud800": 1}'):
        answer = gateway.post(CHAT, content=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["message"]
    answer = gateway.post(CHAT, content=b" " * 1_000_001)
    assert answer.status_code == 413
    assert "1000000" in answer.json()["error"]["message"]
    answer = gateway.post(CHAT, content=b"a=b", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


def test_half_of_a_surrogate_pair_is_refused(gateway):
    body = b'{"model": "talker", "messages": [{"role": "user", "content": "\\ud83d"}]}'
    answer = gateway.post(CHAT, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages.0.content"
    answer = gateway.post(CHAT, content=b'{"model": "talker", "messages": [{"\\ud83d": 1}]}')
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages.0")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_abandons_the_work(gateway, backend, stream):
    backend.holding = True
    with (
        httpx.Client(base_url=gateway.base_url, timeout=0.3) as client,
        pytest.raises(httpx.ReadTimeout),
    ):
        client.post(CHAT, json={**TALKER, "stream": stream})
    assert backend.left.wait(5)


def test_a_client_that_leaves_abandons_all_its_streams(gateway, backend):
    backend.holding = True
    with gateway.stream("POST", COMPLETIONS, json={**PROMPT, "n": 3, "stream": True}) as answer:
        next(answer.iter_lines())
    assert backend.left.wait(5)


def test_a_gateway_that_stops_lets_streams_end(backend):
    """The first piece arrives before, the others after; new requests are refused."""
    own = type(backend)()
    own.pause_s = 0.3
    gateway = Gateway(own, port=0)
    gateway.start()
    url = f"http://127.0.0.1:{gateway.port}"
    stopping = threading.Thread(target=gateway.stop)
    with httpx.stream(
        "POST", f"{url}{CHAT}", json={**TALKER, "stream": True}, timeout=30
    ) as answer:
        lines = answer.iter_lines()
        first = next(line for line in lines if "Hi" in line)
        stopping.start()
        rest = [line for line in lines if line]
    pieces = [json.loads(line.removeprefix("data: ")) for line in [first, *rest[:-1]]]
    assert rest[-1] == "data: [DONE]"
    text = [piece["choices"][0]["delta"].get("content") or "" for piece in pieces]
    assert "".join(text) == "Hi é"
    stopping.join(20)
    assert not stopping.is_alive()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/models")


def test_requests_beyond_the_limit_are_refused(backend):
    """Those that have arrived count; a body that does not end holds up nobody, and ends itself."""
    own = type(backend)()
    own.holding = True
    limits = Limits(max_requests=2, timeout_s=1.0)
    with Gateway(own, port=0, limits=limits) as gateway, ThreadPoolExecutor(5) as pool:
        url = f"http://127.0.0.1:{gateway.port}"

        def slow():
            def body():
                yield b"{"
                time.sleep(1.3)

            return httpx.post(f"{url}{CHAT}", content=body(), timeout=30)

        unfinished = [pool.submit(slow) for _ in range(2)]
        time.sleep(0.2)
        asked = [
            pool.submit(httpx.post, f"{url}{CHAT}", json={**TALKER, "stream": stream}, timeout=2)
            for stream in (False, True)
        ]
        deadline = time.monotonic() + 10
        while len(own.calls) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        refused = httpx.post(f"{url}{CHAT}", json=TALKER)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "2 requests are in progress" in refused.json()["error"]["message"]
        assert httpx.get(f"{url}/healthz").status_code == 200
        for late in unfinished:
            assert late.result().status_code == 504
        for future in asked:
            assert isinstance(future.exception(), httpx.ReadTimeout)
