"""Long runs leave room for others, and end when nobody waits for their answers."""

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keras_transformers.serving import BatchingOptions, Client, Limits, ModelSettings, Server
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.server.saved_models import SavedModel

FOREVER = 10**9  # loops
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def model(half_plus):
    loaded = SavedModel(half_plus(2.0), max_runs=3)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def served(half_plus, publish, tmp_path_factory):
    """A server of two models, whose requests may take minutes."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("spinner", "other"):
        publish(folder / name, 1, 2.0)
    settings = [ModelSettings(name, folder / name) for name in ("spinner", "other")]
    limits = Limits(timeout_s=20.0, max_new_tokens=100)
    options = BatchingOptions(long_run_s=0.05)
    with Server(settings, rest_port=0, grpc_port=0, limits=limits, batching=options) as running:
        assert running.wait_until_loaded(PATIENCE_S)
        yield running


def until(condition):
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def running(server):
    return [run for run in server.engine._scheduler._runs if run.is_long]


def spin(loops=FOREVER):
    return json.dumps({"signature_name": "spin", "inputs": {"loops": [loops]}}).encode()


@contextlib.contextmanager
def left_alone(server):
    """Sends an endless request by REST, and leaves after the block."""
    body = spin()
    path, size = "/v1/models/spinner:predict", len(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
        connection.sendall(head.encode() + body)
        yield


def test_long_runs_in_every_thread_of_tensorflow_hold_up_no_other(model):
    inputs = {"loops": np.int32([FOREVER])}
    with ThreadPoolExecutor(2) as pool:  # there may be as few threads as cores
        runs = [
            pool.submit(model.run, model.signatures["spin"], inputs, timeout_s=5.0)
            for _ in range(2)
        ]
        for _ in range(5):
            found = model.run(model.signatures["rows"], {"x": np.float32([2])}, timeout_s=90)
            assert found["y"].tolist() == [3]
        for run in runs:
            with pytest.raises(RequestError) as caught:
                run.result(PATIENCE_S)
            assert caught.value.code == Code.DEADLINE_EXCEEDED


def test_others_are_answered_while_long_runs_go_on_and_those_that_wait_never_begin(served):
    clients = [left_alone(served) for _ in range(6)]
    with (
        Client(f"http://127.0.0.1:{served.rest_port}", timeout_s=PATIENCE_S) as rest,
        Client(f"127.0.0.1:{served.grpc_port}", timeout_s=PATIENCE_S) as grpc,
    ):
        with contextlib.ExitStack() as connections:
            for client in clients:
                connections.enter_context(client)
            until(lambda: len(running(served)) >= 2)
            for _ in range(10):
                assert rest.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]
                assert grpc.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]
            assert 2 <= len(served.engine._scheduler._runs) <= 3  # the others have not begun
        until(lambda: not served.engine._scheduler._num_waiting)  # those never run
        assert rest.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]


def test_a_request_may_not_ask_for_more_new_tokens(served):
    engine = served.engine
    for name in ("max_length", "max_new_tokens"):
        engine._check_new_tokens({name: np.int32([100, 1])})
        with pytest.raises(RequestError, match=f"{name} is 101 in row 1.*100.*--max-new-tokens"):
            engine._check_new_tokens({name: np.int32([1, 101])})
