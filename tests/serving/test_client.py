import dataclasses
import json
import threading
import time
from concurrent import futures
from pathlib import Path

import numpy as np
import other_libraries
import pytest

from keras_transformers.pipelines import results
from keras_transformers.serving import Client, Code, Limits, ModelSettings, RequestError, Server
from keras_transformers.serving.client import asking
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.transport import VersionStatus
from keras_transformers.serving.server import local

EXPORT = Path(__file__).parents[2] / "saved_models" / "translate_de_en" / "1"
MODEL = "half_plus_two"


@pytest.fixture(scope="module", params=["rest", "grpc"])
def client(request, server):
    targets = {
        "rest": f"http://127.0.0.1:{server.rest_port}",
        "grpc": f"127.0.0.1:{server.grpc_port}",
    }
    with Client(targets[request.param], batch_size=2) as made:
        yield made


def test_predict(client):
    outputs = client.predict({"x": [1, 2.0, 5]}, model=MODEL)
    assert outputs["y"].dtype == np.float32
    assert outputs["y"].tolist() == [2.5, 3.0, 4.5]
    inputs = {"tag": ["ü", b"\xff"], "signal": [[1], [2]], "sensor": np.ones((2, 2, 2), int)}
    outputs = client.predict(inputs, model=MODEL, version=123, signature_name="named")
    assert outputs["tag_bytes"].tolist() == ["ü".encode(), b"\xff"]
    assert outputs["total"].tolist() == [5, 6]
    assert outputs["total"].dtype == np.int64


def test_classify_and_regress(client):
    examples = [{"x": 80.0}, {"x": [2.0]}]
    values = client.regress(examples, model=MODEL, signature_name="regress_x_to_y")
    assert values == [42.0, 3.0]
    rows = client.classify(
        examples[1:], model=MODEL, label="Version_Label", signature_name="classify_labels"
    )
    assert rows == [[("no", 3.0), ("yes", 2.0)]]


def test_status_and_signatures(client):
    assert client.status(MODEL) == [VersionStatus(123, "AVAILABLE", "")]
    found = client.signatures(MODEL)["named"]
    assert (found.inputs["sensor"].dtype, found.inputs["sensor"].shape) == (
        np.dtype("int64"),
        (None, 2, 2),
    )
    assert found.outputs["tag"].dtype == np.dtype(object)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"model": "nobody"}, Code.NOT_FOUND),
        ({"model": MODEL, "version": 7}, Code.NOT_FOUND),
        ({"model": MODEL, "label": "nobody"}, Code.INVALID_ARGUMENT),
        ({"model": MODEL, "signature_name": "named"}, Code.INVALID_ARGUMENT),
    ],
)
def test_what_the_server_refuses(client, arguments, code):
    with pytest.raises(RequestError) as caught:
        client.predict({"x": [1.0]}, **arguments)
    assert caught.value.code == code


def test_what_does_not_fit(client):
    with pytest.raises(ValueError, match="no signature 'nobody'; it has"):
        client.predict({"x": [1.0]}, model=MODEL, signature_name="nobody")
    with pytest.raises(ValueError, match="takes x, not 1 arguments: .* `Client.predict`"):
        client.ask(["text"], model=MODEL)
    with pytest.raises(ValueError, match="str or bytes, got 3"):
        client.predict({"tag": [3]}, model=MODEL, signature_name="named")


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_a_table_is_not_a_list_of_texts(client, kind):
    table = other_libraries.table(kind, {"review": ["a good film"]})
    for texts in ((table,), (["a"], table)):
        with pytest.raises(ValueError, match=r"columns review: pass one .* data\['review'\]"):
            client.ask(*texts, model=MODEL)
    inputs = other_libraries.table(kind, {"x": [1.0, 2.0, 5.0]})
    assert client.predict(inputs, model=MODEL)["y"].tolist() == [2.5, 3.0, 4.5]
    with pytest.raises(ValueError, match="a list: pass a mapping"):
        client.predict([1.0], model=MODEL)


def test_one_text_gives_one_answer_as_a_pipeline_does(client):
    def ask(*texts, signature):
        return client.ask(*texts, model=MODEL, signature_name=signature)

    one = ask("a bc", signature="words")
    assert one == results.WordVectors(["a", "bc"], [[[1.0]], [[2.0]]])
    for text in (b"a bc", np.str_("a bc")):
        assert ask(text, signature="words") == one
    for texts in (["a bc"], ("a bc",), np.array(["a bc"]), (text for text in ["a bc"])):
        assert ask(texts, signature="words") == [one]
    assert ask("a", "a", signature="pair") == {"score": 1.0}
    assert ask(["a", "b"], ["a", "c"], signature="pair") == [{"score": 1.0}, {"score": 0.0}]
    assert ask([], [], signature="pair") == []
    assert client.rows("a", "a", model=MODEL, signature_name="pair") == [{"score": 1.0}]
    for texts, message in (
        ((["a", "b"], ["c"]), "as many text as text_b, not {'text': 2, 'text_b': 1}"),
        ((["a"], "c"), "text_b must be a list of strings, not 'c'"),
        (("a", ["c"]), r"text_b\[0\] is \['c'\]"),
        (("a",), "takes text, text_b, not 1 arguments"),
        ((None, "a"), "text must be a list of strings, not None"),
        (({"text": ["a"]}, ["b"]), "text must be .* the columns text: pass one"),
    ):
        with pytest.raises(ValueError, match=message):
            ask(*texts, signature="pair")


def test_half_of_a_surrogate_pair(client):
    half = "has half of a surrogate pair, .* at character 2: repair"
    inputs = {"tag": ["a", "a \ud83d"], "signal": [[1], [2]], "sensor": np.ones((2, 2, 2), int)}
    with pytest.raises(ValueError, match=f"^tag: element 1 {half}"):
        client.predict(inputs, model=MODEL, signature_name="named")
    with pytest.raises(ValueError, match=f"^example 1: x {half}"):
        client.classify([{"x": "a"}, {"x": ["a \ud83d"]}], model=MODEL)
    with pytest.raises(ValueError, match=f"^conversation 0, message 0: content {half}"):
        client.chat([{"role": "user", "content": "a \ud83d"}], model=MODEL)


def test_a_deadline(server):
    with Client(f"http://127.0.0.1:{server.rest_port}", timeout_s=0.1) as client:
        start = time.monotonic()
        with pytest.raises(RequestError) as caught:
            client.predict({"loops": [200_000]}, model=MODEL, signature_name="spin")
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("target", ["http://127.0.0.1:9", "127.0.0.1:9"])
def test_no_server(target):
    with Client(target, max_attempts=2, timeout_s=5) as client, pytest.raises(RequestError) as got:
        client.status(MODEL)
    assert got.value.code == Code.UNAVAILABLE


def test_only_what_was_not_taken_on_is_sent_again(client, monkeypatch):
    monkeypatch.setattr(asking, "sleep", lambda seconds: slept.append(seconds))
    for code, attempts in (
        (Code.UNAVAILABLE, 5),
        (Code.RESOURCE_EXHAUSTED, 5),
        (Code.INVALID_ARGUMENT, 1),
        (Code.DEADLINE_EXCEEDED, 1),
    ):
        slept, sent = [], []

        def refuse(spec, timeout_s, code=code, sent=sent):
            sent.append(timeout_s)
            raise RequestError(code, "no")

        monkeypatch.setattr(client._transport, "status", refuse)
        with pytest.raises(RequestError):
            client.status(MODEL)
        assert len(sent) == attempts
        assert slept == sorted(slept) or len(slept) < 2 or slept[-1] > slept[0]


def test_targets():
    assert Target.parse("https://models:443/") == Target("rest", "https://models:443", True)
    assert Target.parse("grpcs://models:8500") == Target("grpc", "models:8500", True)
    assert Target.parse("[::1]:8500").address == "[::1]:8500"
    for wrong in ("models", "ftp://models:1", "models:port", "http://", "grpc://a:1/path"):
        with pytest.raises(ValueError, match="pass http://host:port"):
            Target.parse(wrong)


def test_answers_are_typed_and_as_long_as_their_own_text(client):
    """The server pads the rows of a batch to the longest row."""
    answers = client.ask(["a bc", "", "d"], model=MODEL, signature_name="words")
    assert answers == [
        results.WordVectors(["a", "bc"], [[[1.0]], [[2.0]]]),
        results.WordVectors([], []),
        results.WordVectors(["d"], [[[1.0]]]),
    ]


def test_overload_is_refused_and_passes(publish, tmp_path):
    publish(tmp_path, 1, 2.0)
    limits = Limits(max_requests=2, timeout_s=10)
    with Server([ModelSettings("m", tmp_path)], rest_port=0, grpc_port=0, limits=limits) as busy:
        assert busy.wait_until_loaded(60)
        for target in (f"http://127.0.0.1:{busy.rest_port}", f"127.0.0.1:{busy.grpc_port}"):
            with Client(target, max_attempts=1) as hasty, Client(target) as patient:
                patient.predict({"loops": [1]}, model="m", signature_name="spin")
                hasty.signatures("m")
                with futures.ThreadPoolExecutor(12) as pool:
                    asked = [
                        pool.submit(
                            hasty.predict, {"loops": [1500]}, model="m", signature_name="spin"
                        )
                        for _ in range(10)
                    ]
                    errors = [f.exception() for f in asked if f.exception()]
                    codes = [error.code for error in errors]
                    # gRPC itself refuses calls too, and says nothing.
                    assert {1} <= {error.retry_after_s for error in errors} <= {1, None}
                assert codes
                assert set(codes) == {Code.RESOURCE_EXHAUSTED}
                assert len(codes) < 10
                assert patient.predict({"x": [1.0]}, model="m")["y"].tolist() == [2.5]


def test_a_first_version_may_come_later(publish, tmp_path, half_plus):
    half_plus(2.0)
    server = Server(
        [ModelSettings("m", tmp_path)], rest_port=0, grpc_port=None, poll_interval_s=0.05
    )
    with server, Client(f"http://127.0.0.1:{server.rest_port}", max_attempts=50) as client:
        assert not server.wait_until_loaded(10)  # an empty folder
        with pytest.raises(RequestError) as caught:
            client.predict({"x": [1.0]}, model="m")
        assert caught.value.code == Code.NOT_FOUND
        publish(tmp_path, 1, 2.0)
        while not server.engine.models.is_ready():
            time.sleep(0.02)
        assert client.predict({"x": [1.0]}, model="m")["y"].tolist() == [2.5]


def test_a_rest_loop_that_hangs_does_not_hold_up_the_end(monkeypatch, caplog):
    ending = threading.Event()
    monkeypatch.setattr(Server, "_serve_rest", lambda self: ending.wait())
    monkeypatch.setattr(local, "_PATIENCE_S", 0.01)
    server = Server([], rest_port=0, grpc_port=None, limits=Limits(timeout_s=0.01))
    server.start()
    server.stop()
    assert "the REST server did not stop" in caplog.text
    assert server._listening.fileno() != -1  # the loop still watches it
    ending.set()
    server._listening.close()


def test_stopping_answers_what_is_under_way(publish, tmp_path):
    publish(tmp_path, 1, 2.0)
    before = set(threading.enumerate())
    server = Server([ModelSettings("m", tmp_path)], rest_port=0, grpc_port=0)
    server.start()
    assert server.wait_until_loaded(60)
    targets = (f"http://127.0.0.1:{server.rest_port}", f"127.0.0.1:{server.grpc_port}")
    with futures.ThreadPoolExecutor(2) as pool:
        clients = [Client(target, max_attempts=1) for target in targets]
        for client in clients:
            client.signatures("m")
            client.predict({"loops": [1]}, model="m", signature_name="spin")
        asked = [
            pool.submit(c.predict, {"loops": [4000]}, model="m", signature_name="spin")
            for c in clients
        ]
        limit = time.monotonic() + 10
        while b"requests_in_flight 2.0" not in server.engine.metrics.page():
            assert time.monotonic() < limit
            time.sleep(0.01)
        server.stop()
        assert [f.result()["done"].tolist() for f in asked] == [[1.0], [1.0]]
    with pytest.raises(RequestError):
        clients[0].predict({"x": [1.0]}, model="m")
    for client in clients:
        client.close()
    started = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in started if name in ("rest", "health") or "serving" in name]


@pytest.mark.slow
def test_a_published_model_answers_as_exported(translator):
    metadata = json.loads((EXPORT / "assets.extra/keras_transformers.json").read_text("utf-8"))
    example = metadata["signatures"]["serving_default"]["examples"][0]
    with Client(translator, timeout_s=60) as client:
        answers = client.ask(example["inputs"]["text"]["values"], model="translate_de_en")
    assert all(isinstance(answer, results.Translation) for answer in answers)
    found = [dataclasses.astuple(answer) for answer in answers]
    expected = example["outputs"]
    assert [text for text, _ in found] == expected["translation"]["values"]
    np.testing.assert_allclose([s for _, s in found], expected["score"]["values"], atol=1e-4)
