"""Texts as they come, and requests that share a language model, through the whole server."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import tiny

from keras_transformers.cli.main import main
from keras_transformers.results import Generation
from keras_transformers.serving import Client, Limits, ModelSettings, Server
from keras_transformers.serving.client.transport import Call
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.serving.server import connections, decoding
from keras_transformers.serving.server.backend import EngineBackend
from keras_transformers.tasks.generation.step_names import STEP

PATIENCE_S = 300.0  # of tests that fail
TALK = [{"role": "user", "content": "abc"}]
NOTHING = {"max_length": 12, "temperature": 1.0, "top_k": 1, "top_p": 1.0, "seed": 0}
NOTHING |= {"repetition_penalty": 1.0, "stop": ()}
ROW_NAMES = [name for name in NOTHING if name not in ("repetition_penalty", "stop")]
SAMPLED = {"temperature": 1.3, "top_k": 0, "max_length": 30}


def until(condition):
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.002)


class Steps:
    """Counts the steps of a model; holds them up where a test says so."""

    def __init__(self, model):
        self.model, self.run = model, model.step
        self.count, self.most = 0, np.inf
        self.arrived = threading.Event()

    def step(self, signature, inputs, *outputs):
        if signature.name == STEP:
            self.arrived.set()
            until(lambda: self.count < self.most)
            self.count += 1
        return self.run(signature, inputs, *outputs)

    def hold(self, after):
        """Lets so many more steps pass."""
        self.arrived.clear()
        self.most = self.count + after

    def until_held(self):
        until(lambda: self.count == self.most and self.arrived.is_set())

    def release(self):
        self.most = np.inf


@pytest.fixture(scope="module")
def server(publish, tmp_path_factory):
    """Serves the talker, and a model that computes y = x / 2 + 2."""
    other = tmp_path_factory.mktemp("other")
    publish(other, 1, 2.0)
    talker = tiny.exported_talker().parent
    settings = [ModelSettings("talker", talker), ModelSettings("other", other)]
    limits = Limits(timeout_s=PATIENCE_S)
    with Server(settings, rest_port=0, grpc_port=0, limits=limits) as running:
        assert running.wait_until_loaded(PATIENCE_S)
        yield running


@pytest.fixture(scope="module")
def url(server):
    return f"http://127.0.0.1:{server.rest_port}"


@pytest.fixture(scope="module")
def client(url):
    with Client(url, timeout_s=PATIENCE_S) as made:
        yield made


@pytest.fixture(scope="module")
def model(server):
    (version,) = server.engine.models["talker"].versions()
    return version.saved_model


@pytest.fixture
def steps(model, monkeypatch):
    counted = Steps(model)
    monkeypatch.setattr(model, "step", counted.step)
    yield counted
    counted.release()


@contextlib.contextmanager
def as_before(model):
    """Makes a model one of the exports that have no steps."""
    steps, model.steps = model.steps, {}
    try:
        yield
    finally:
        model.steps = steps


def columns(*rows, **texts):
    """Returns the inputs of `complete` or `chat_complete`, each row with its own options."""
    rows = [NOTHING | row for row in rows]
    most = max([1, *(len(row["stop"]) for row in rows)])
    stops = [[*row["stop"], *[""] * most][:most] for row in rows]
    options = {name: [row[name] for row in rows] for name in NOTHING if name != "stop"}
    return {**texts, **options, "stop": stops}


def collected(generator):
    texts = []
    while True:
        try:
            texts.append(next(generator))
        except StopIteration as end:
            return texts, end.value


def same(answers, expected):
    """Returns whether outputs are the same, up to the rounding of another number of rows."""
    assert answers.keys() == expected.keys()
    for name in answers.keys() & {"log_probability", "token_log_probabilities"}:
        np.testing.assert_allclose(answers[name], expected[name], rtol=1e-4, atol=1e-4)
        answers, expected = ({**each, name: each["text"]} for each in (answers, expected))
    return {n: a.tolist() for n, a in answers.items()} == {
        n: a.tolist() for n, a in expected.items()
    }


PROMPTS = ["two dogs", "", "z" * 300, "你好 é", "a", "no token", "stop"]
ROWS = [
    {},
    {**SAMPLED, "seed": 1},
    {**SAMPLED, "top_k": 9, "top_p": 0.8, "seed": 2},
    {"repetition_penalty": 1.9, "max_length": 20},
    {"temperature": 0.5, "top_k": 3, "seed": -4, "repetition_penalty": 1.2},
    {"max_length": 0},
    {**SAMPLED, "seed": 5, "stop": ["zz", *"aeioustnrl EJLC<="]},
]


@pytest.mark.one_case
@pytest.mark.parametrize("part", [512, 7])
def test_step_by_step_the_answers_are_those_of_the_graph(client, model, part, monkeypatch):
    monkeypatch.setattr(decoding, "_MOST_READ", part)
    inputs = columns(*ROWS, prompt=PROMPTS)
    called = {"model": "talker", "signature_name": "complete_tokens"}
    with as_before(model):
        expected = client.predict(inputs, **called)
    together = client.predict(inputs, **called)
    alone = [
        client.predict({name: column[row : row + 1] for name, column in inputs.items()}, **called)
        for row in range(len(PROMPTS))
    ]
    width = expected["tokens"].shape[1]
    joined = {
        name: np.concatenate(
            [
                np.pad(row[name], [(0, 0), (0, width - row[name].shape[1])], constant_values=pad)
                if (
                    pad := {"tokens": b"", "token_bytes": b"", "token_log_probabilities": 0}.get(
                        name
                    )
                )
                is not None
                else row[name]
                for row in alone
            ]
        )
        for name in expected
    }
    assert same(together, dict(expected))
    assert same(joined, dict(expected))
    assert expected["num_new_tokens"].tolist()[5] == 0
    assert any(expected["finished"])  # by a stop string


@pytest.mark.slow
def test_answers_to_conversations_are_those_of_the_graph(client, model):
    roles, texts = [["system", "user"], ["user", ""]], [["Be brief.", "abc"], ["d", ""]]
    inputs = columns({}, SAMPLED, roles=roles, texts=texts)
    called = {"model": "talker", "signature_name": "chat_complete"}
    with as_before(model):
        expected = client.predict(inputs, **called)
    assert same(client.predict(inputs, **called), expected)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("signature", "names", "all_options"),
    [
        ("serving_default", ["prompt"], "complete"),
        ("generate", ["prompt", *ROW_NAMES], "complete"),
        ("chat", ["roles", "texts"], "chat_complete"),
    ],
)
def test_options_that_a_signature_lacks_are_those_of_the_export(
    client, steps, signature, names, all_options
):
    texts = {"prompt": ["abc", "d"]}
    if "prompt" not in names:
        texts = {"roles": [["user"], ["user"]], "texts": [["abc"], ["d"]]}
    inputs = columns({}, {}, **texts)
    expected = client.predict(inputs, model="talker", signature_name=all_options)
    before = steps.count
    some = {name: inputs[name] for name in names}
    assert same(client.predict(some, model="talker", signature_name=signature), expected)
    assert steps.count == before + 12


def test_no_rows_have_empty_outputs(server):
    inputs = columns(prompt=[])
    inputs["stop"] = np.zeros((0, 1), object)
    with Client(f"127.0.0.1:{server.grpc_port}", timeout_s=PATIENCE_S) as rpc:
        outputs = rpc.predict(inputs, model="talker", signature_name="complete_tokens")
    shapes = {name: array.shape for name, array in outputs.items()}
    assert shapes == {
        **dict.fromkeys(
            ("text", "num_new_tokens", "log_probability", "finished", "num_prompt_tokens"), (0,)
        ),
        **dict.fromkeys(("tokens", "token_bytes", "token_log_probabilities"), (0, 0)),
    }


@pytest.mark.parametrize("row", [1, 3, 6])
def test_pieces_joined_are_the_plain_answer(client, row):
    options = NOTHING | ROWS[row]
    for prompt in ("abc", "你好"):
        messages = [{"role": "user", "content": prompt}]
        for generator, plain in (
            (
                client.chat(messages, model="talker", stream=True, **options),
                client.chat(messages, model="talker", **options),
            ),
            (client.stream(prompt, model="talker", **options), None),
        ):
            pieces, answer = collected(generator)
            assert isinstance(answer, Generation)
            assert "".join(pieces) == answer.text
            assert all(pieces)
            assert plain is None or answer == plain


def test_without_options_a_stream_has_those_of_the_export(client):
    _, answer = collected(client.chat([TALK], model="talker", stream=True))
    assert answer == client.chat(TALK, model="talker")
    (plain,) = client.ask(["abc"], model="talker")
    assert collected(client.stream("abc", model="talker"))[1] == plain


def test_the_first_text_comes_before_the_last_step(client, steps):
    steps.hold(after=4)
    generator = client.stream("abc", model="talker")
    first = next(generator)
    assert first
    assert steps.count <= 4
    steps.release()
    pieces, answer = collected(generator)
    assert first + "".join(pieces) == answer.text


def test_joining_and_leaving_change_no_other_answer(client, steps):
    options = [{**SAMPLED, "seed": seed, "max_length": 20 + seed} for seed in range(5)]
    prompts = ["abc", "a longer prompt than that", "x", "yz" * 40, "left"]
    expected = [
        collected(client.stream(prompt, model="talker", **each))[1]
        for prompt, each in zip(prompts, options, strict=True)
    ]
    with ThreadPoolExecutor(5) as pool:
        steps.hold(after=3)
        streams = [client.stream(prompts[4], model="talker", **options[4])]
        next(streams[0])
        runs = []
        for prompt, each in zip(prompts[:4], options, strict=False):
            runs.append(pool.submit(collected, client.stream(prompt, model="talker", **each)))
            steps.until_held()
            time.sleep(0.05)  # it arrives
            steps.hold(after=4)
        streams[0].close()  # the last one leaves
        steps.release()
        answers = [run.result(PATIENCE_S)[1] for run in runs]
    for answer, plain in zip(answers, expected, strict=False):
        assert answer.text == plain.text
        assert answer.log_probability == pytest.approx(plain.log_probability, rel=1e-4)


def request_of(model, **inputs):
    """Returns a request for events, as bytes."""
    body = json.dumps(inputs).encode()
    head = (
        f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


LONG = {"signature_name": "complete", "inputs": columns({"max_length": 500}, prompt=["abc"])}


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place_within_one_step(server, steps, stream, monkeypatch):
    monkeypatch.setattr(connections, "_LEAVING_S", 0.01)  # a plain answer could still be read
    steps.hold(after=5)
    with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
        body = request_of("talker", **LONG)
        connection.sendall(body if stream else body.replace(b"text/event-stream", b"*/*"))
        steps.until_held()
    time.sleep(0.3)  # the server sees that the connection is closed
    steps.release()
    until(lambda: not server.engine._decoding._threads)
    assert steps.count <= 6  # the step that was held, and none after it


def test_a_client_that_closes_its_generator_leaves(client, server, steps):
    steps.hold(after=3)
    generator = client.stream("abc", model="talker", max_length=500)
    next(generator)
    generator.close()
    time.sleep(0.3)
    steps.release()
    until(lambda: not server.engine._decoding._threads)
    assert steps.count <= 4


def test_a_long_generation_holds_up_no_score_and_no_other_model(client, steps):
    with ThreadPoolExecutor(1) as pool:
        steps.hold(after=2)
        long = pool.submit(client.chat, TALK, model="talker", max_length=400)
        steps.until_held()  # in the middle of a step, which takes as long as this
        for _ in range(3):
            score = client.rows(["abc"], model="talker", signature_name="score")
            assert score[0]["num_tokens"] == 3
            assert client.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]
        assert not long.done()
        steps.release()
        assert long.result(PATIENCE_S).num_new_tokens


def test_a_short_conversation_ends_while_a_long_one_goes_on(client):
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(client.stream("abc", model="talker", max_length=550).__next__)
        long.result(PATIENCE_S)
    generator = client.stream("abc", model="talker", max_length=550, repetition_penalty=1.5)
    next(generator)
    assert client.chat(TALK, model="talker", max_length=3).num_new_tokens == 3
    assert next(generator)
    generator.close()


def test_waiting_conversations_are_written_together(client, server, steps):
    until(lambda: not server.engine._decoding._threads)
    name = "keras_transformers:serving:step_rows"
    value = server.engine.metrics._registry.get_sample_value
    before = value(f"{name}_count"), value(f"{name}_sum")
    with ThreadPoolExecutor(6) as pool:
        steps.hold(after=0)
        runs = [pool.submit(client.chat, TALK, model="talker", max_length=20) for _ in range(6)]
        steps.until_held()
        time.sleep(0.3)
        steps.release()
        answers = {run.result(PATIENCE_S).text for run in runs}
    assert len(answers) == 1
    count, rows = (value(f"{name}_{n}") - b for n, b in zip(("count", "sum"), before, strict=True))
    assert rows == 6 * 20
    assert count < 3 * 20


def test_a_bad_request_fails_alone_with_the_graphs_sentence(client, steps):
    steps.hold(after=2)
    generator = client.stream("abc", model="talker")
    first = next(generator)
    refused = [
        ({"top_k": 10_000}, "top_k"),
        ({"temperature": 0.0}, "temperature"),
    ]
    with ThreadPoolExecutor(2) as pool:
        inputs = [columns(options, prompt=["a"]) for options, _ in refused]
        inputs.append(columns({}, prompt=["a" * 700]))
        runs = [
            pool.submit(client.predict, i, model="talker", signature_name="complete")
            for i in inputs
        ]
        time.sleep(0.1)
        steps.release()
        errors = [run.exception(PATIENCE_S) for run in runs]
    for error, place in zip(errors, ("top_k", "temperature", "600 positions"), strict=True):
        assert error.code == Code.INVALID_ARGUMENT
        assert place in error.message
        assert "node" not in error.message
    pieces, answer = collected(generator)
    assert first + "".join(pieces) == answer.text


def events(response):
    return [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]


@pytest.fixture
def post(url):
    def send(body, accept="text/event-stream"):
        return httpx.post(
            f"{url}/v1/models/talker:predict",
            json=body,
            headers={"accept": accept},
            timeout=PATIENCE_S,
        )

    return send


def test_events_have_the_outputs_of_a_plain_answer(post):
    body = {"signature_name": "complete_tokens", "inputs": columns({}, prompt=["abc"])}
    response, plain = post(body), post(body, "application/json").json()["outputs"]
    assert response.headers["content-type"].startswith("text/event-stream")
    outputs = [event["outputs"] for event in events(response)]
    assert all(part.keys() == plain.keys() for part in outputs)
    assert len(outputs) > 2
    assert "".join(part["text"][0] for part in outputs) == plain["text"][0]
    for name in ("tokens", "token_bytes", "token_log_probabilities"):  # of each part
        assert [value for part in outputs for value in part[name][0]] == plain[name][0]
        outputs[-1][name] = plain[name]
    assert outputs[-1] | {"text": plain["text"]} == plain
    counts = [part["num_new_tokens"][0] for part in outputs]
    assert counts == sorted(set(counts))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"inputs": ["a", "b"]}, 200),  # two rows
        ({"inputs": []}, 200),
        ({"signature_name": "score", "inputs": ["abc"]}, 200),
        ({"signature_name": "complete", "inputs": {"prompt": ["a"]}}, 400),
        ({"signature_name": "__step", "inputs": {"token_ids": [1]}}, 400),
        ({"inputs": [3]}, 400),
        ({"inputs": ["a" * 700]}, 400),
    ],
)
def test_what_cannot_be_streamed_is_answered_as_ever(post, body, status):
    response = post(body)
    plain = post(body, "*/*")
    assert response.status_code == plain.status_code == status
    assert response.json() == plain.json()


def test_the_steps_are_not_for_clients(client):
    assert {name for name in client.signatures("talker") if name.startswith("__")} == {
        "__chat_template",
        "__options",
        "__task",
        "__saved_model_init_op",
    }


@pytest.mark.slow
def test_over_grpc_and_from_exports_without_steps_there_is_one_piece(server, url, model):
    with Client(f"127.0.0.1:{server.grpc_port}", timeout_s=PATIENCE_S) as rpc:
        plain = rpc.chat(TALK, model="talker", max_length=9)
        assert collected(rpc.chat(TALK, model="talker", stream=True, max_length=9)) == (
            [plain.text],
            plain,
        )
    with as_before(model), Client(url, timeout_s=PATIENCE_S) as old:
        assert collected(old.chat(TALK, model="talker", stream=True, max_length=9)) == (
            [plain.text],
            plain,
        )
    with Client(url, timeout_s=PATIENCE_S) as client:
        pieces, answer = collected(client.stream("abc", model="talker", max_length=0))
        assert (pieces, answer.text) == ([], "")


def test_a_stream_that_is_too_late_ends_with_an_error(server, steps):
    engine, parts = server.engine, []
    inputs = {"prompt": np.array([b"abc"], object)}

    async def within(seconds):
        with (
            engine.call("REST", "Predict", seconds) as call,
            engine.lease(call, ModelSpec("talker")) as lease,
        ):
            async for outputs in lease.stream(lease.model.signatures["serving_default"], inputs):
                parts.append(outputs)

    steps.hold(after=3)
    with pytest.raises(RequestError, match=r"within 1 s.*wait longer") as caught:
        asyncio.run(within(1.0))
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert parts
    steps.release()
    until(lambda: not engine._decoding._threads)
    assert steps.count == 4  # the one that was held, and no other


def test_a_client_gives_a_stream_up_when_its_time_is_up(client, steps):
    generator = client.stream("abc", model="talker", max_length=500)
    client._timeout_s, before = 0.0, client._timeout_s
    try:
        with pytest.raises(RequestError, match=r"pass a larger timeout") as caught:
            list(generator)
    finally:
        client._timeout_s = before
    assert caught.value.code == Code.DEADLINE_EXCEEDED


def test_the_gateways_routes_stream_from_the_engine_itself(server):
    with ThreadPoolExecutor(1) as pool:
        backend = EngineBackend(server.engine, pool)
        call = Call(ModelSpec("talker"), "serving_default", PATIENCE_S)

        async def parts(inputs):
            return [part async for part in backend.stream(call, inputs)]

        one = asyncio.run(parts({"prompt": np.array([b"abc"], object)}))
        two = asyncio.run(parts({"prompt": np.array([b"abc", b"d"], object)}))
    assert len(one) > 2
    assert len(two) == 1
    assert b"".join(part["text"][0] for part in one) == two[0]["text"][0]


@pytest.mark.slow
def test_a_server_that_stops_lets_streams_end_and_a_swap_keeps_their_model(tmp_path):
    base = tmp_path / "talker"
    base.mkdir()
    (base / "1").symlink_to(tiny.exported_talker())
    settings = [ModelSettings("talker", base)]
    running = Server(settings, rest_port=0, grpc_port=None, poll_interval_s=0.05)
    running.start()
    assert running.wait_until_loaded(PATIENCE_S)
    (old,) = running.engine.models["talker"].versions()
    steps = Steps(old.saved_model)
    old.saved_model.step = steps.step
    with Client(f"http://127.0.0.1:{running.rest_port}", timeout_s=PATIENCE_S) as client:
        steps.hold(after=3)
        generator = client.stream("abc", model="talker")
        first = next(generator)
        old.unload()
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        time.sleep(0.1)
        assert old.saved_model is not None
        steps.release()
        pieces, answer = collected(generator)
        assert first + "".join(pieces) == answer.text
        assert answer.num_new_tokens == 12
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()
        until(lambda: old.saved_model is None)


def test_ask_prints_the_text_as_it_comes(url, capsys, client):
    plain = client.chat(TALK, model="talker").text
    assert main(["ask", url, "abc", "--model", "talker", "--chat", "--stream"]) == 0
    assert capsys.readouterr().out == plain + "\n"
    assert main(["ask", url, "abc", "--model", "talker", "--stream"]) == 0
    assert capsys.readouterr().out == client.ask(["abc"], model="talker")[0].text + "\n"


def test_the_code_of_the_docs_prints_both_texts(url, client, capsys):
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text("utf-8")
    code = page.partition("### Streaming")[2].partition("```python\n")[2].partition("```")[0]
    code = code.replace("http://127.0.0.1:8501", url).replace("smollm2", "talker")
    exec(code, {"Client": Client, "messages": TALK})
    answer = client.chat(TALK, model="talker", max_length=100).text
    (text,) = client.ask(["The old man and"], model="talker")
    assert capsys.readouterr().out == answer + text.text


def test_what_does_not_write_cannot_be_streamed(client):
    with pytest.raises(ValueError, match=r"serving_default.*other.*x.*Client\.ask"):
        client.stream("abc", model="other")
    with pytest.raises(ValueError, match=r"2 conversations.*one"):
        client.chat([TALK, TALK], model="talker", stream=True)
    with pytest.raises(ValueError, match="no signature 'complete'"):
        client.stream("abc", model="other", max_length=3)
