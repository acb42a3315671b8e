"""The layer between protocol and model: slots, deadlines, keeping a model loaded; and the log."""

import logging
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec, SignatureInfo, TensorInfo
from keras_transformers.serving.server import engine as engines
from keras_transformers.serving.server import logs
from keras_transformers.serving.server.batching import BatchingOptions
from keras_transformers.serving.server.engine import Engine
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.models import AVAILABLE, Models, Version
from keras_transformers.serving.server.settings import ModelSettings

ANY = TensorInfo("t:0", tf.float32, (None,))
SIGNATURE = SignatureInfo("same", "", {"x": ANY}, {"y": ANY})


class Gated:
    """A loaded model whose runs wait at a gate."""

    def __init__(self):
        self.begun, self.gate, self.closed = (threading.Event() for _ in range(3))
        self.answered, self.path = set(), "models/m/1"

    def run(self, signature, inputs, *, timeout_s, cancellation):
        self.begun.set()
        assert self.gate.wait(10)
        assert not self.closed.is_set(), "closed under its own run"
        self.answered.add(signature.name)
        return {"y": inputs["x"]}

    def close(self):
        self.closed.set()


@pytest.fixture
def model():
    return Gated()


@pytest.fixture
def version(model, tmp_path):
    return Version(1, tmp_path / "1", state=AVAILABLE, saved_model=model)


@pytest.fixture
def engine(model, version, tmp_path):
    models = Models(lambda: [ModelSettings("m", tmp_path)], poll_interval_s=60)
    models["m"]._set(version)
    limits, batching = (
        Limits(max_requests=2, max_rows=3, max_body_bytes=100),
        BatchingOptions(num_threads=1),
    )
    running = Engine(models, limits=limits, batching=batching)
    running.start()
    yield running
    model.gate.set()
    running.close()


def ask(engine, seconds=10.0, rows=1, size=10):
    with (
        engine.call("REST", "Predict", seconds) as call,
        engine.slot(size),
        engine.lease(call, ModelSpec("m")) as lease,
    ):
        return lease.run(SIGNATURE, {"x": np.ones(rows, np.float32)})["y"].tolist()


def code(engine, **arguments):
    with pytest.raises(RequestError) as caught:
        ask(engine, **arguments)
    return caught.value.code


def test_a_run_that_outlives_its_request_keeps_its_model(engine, model, version):
    assert code(engine, seconds=0.05) == Code.DEADLINE_EXCEEDED
    assert model.begun.is_set()  # it has not ended
    version.unload()
    assert not model.closed.is_set()
    model.gate.set()
    assert model.closed.wait(10)
    assert version._in_use == 0


def test_a_request_that_nobody_waits_for_gives_its_model_back(engine, model, version):
    assert code(engine, seconds=0.05) == Code.DEADLINE_EXCEEDED
    assert code(engine, seconds=0.05) == Code.DEADLINE_EXCEEDED  # never ran: the worker is busy
    assert version._in_use == 1
    model.gate.set()
    assert ask(engine) == [1]
    engine.close()  # all runs have ended
    assert version._in_use == 0


def test_requests_beyond_the_limit_are_refused_at_once_and_slots_come_back(engine, model):
    first = [threading.Thread(target=ask, args=(engine,)) for _ in range(2)]
    for thread in first:
        thread.start()
    assert model.begun.wait(10)
    while engine.metrics.in_flight._value.get() < 2:
        time.sleep(0.001)
    assert code(engine) == Code.RESOURCE_EXHAUSTED
    model.gate.set()
    for thread in first:
        thread.join()
    for _ in range(3):
        assert code(engine, rows=4) == Code.INVALID_ARGUMENT  # failures free their slots too
    assert ask(engine, rows=3) == [1, 1, 1]


def test_the_bodies_under_way_are_bounded_together(engine, model):
    most = engine.limits.max_held_bytes
    first = threading.Thread(target=ask, args=(engine,), kwargs={"size": most - 10})
    first.start()
    assert model.begun.wait(10)
    assert code(engine, size=11) == Code.RESOURCE_EXHAUSTED
    model.gate.set()
    assert ask(engine, size=10) == [1]
    first.join()
    assert ask(engine, size=most) == [1]  # all came back


def test_a_server_that_stops_refuses_and_gives_the_model_back(engine, model, version):
    model.gate.set()
    engine._scheduler.close()
    assert code(engine) == Code.UNAVAILABLE
    assert version._in_use == 0


def test_a_slow_first_answer_says_why(engine, model, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(RequestError, match="ask again.*first answer"):
        ask(engine, seconds=0.05)
    model.gate.set()
    monkeypatch.setattr(engines, "_SLOW_S", -1.0)
    model.answered.clear()
    for _ in range(2):
        ask(engine)
    (said,) = [message for message in caplog.messages if "the first answer" in message]
    assert "m to 'same'" in said
    assert "keras-transformers warm-up models/m/1" in said
    model.gate.clear()
    with pytest.raises(RequestError) as caught:
        ask(engine, seconds=0.05)
    assert "first" not in caught.value.message


def test_records_of_a_kind_are_logged_now_and_then(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    logger = logging.getLogger("test_logs")
    logger.addFilter(logs.Seldom(10))
    for step in range(25):  # a second each
        logger.warning("bad %s", step)
        logger.warning("other")
        now += 1
    found = [message for message in caplog.messages if message.startswith("bad")]
    assert found == ["bad 0", "bad 10 (and 9 more like it)", "bad 20 (and 9 more like it)"]
    assert len(caplog.messages) == 6
