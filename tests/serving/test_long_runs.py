"""Long runs leave room for others, and end when nobody waits for their answers."""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from keras_transformers.serving import BatchingOptions, Client, Limits, ModelSettings, Server
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.server.cancellation import Cancellation
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
    limits = Limits(timeout_s=300.0, max_new_tokens=100)
    options = BatchingOptions(long_run_s=0.05)
    with Server(settings, rest_port=0, grpc_port=0, limits=limits, batching=options) as running:
        assert running.wait_until_loaded(PATIENCE_S)
        yield running


def until(condition):
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def num_cancelled(server):
    return server.engine.metrics._cancelled_runs._value.get()


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


def test_runs_in_every_thread_of_tensorflow_hold_up_no_other_and_can_be_ended(model):
    endless = [Cancellation() for _ in range(3)]  # there may be as few threads as cores
    inputs = {"loops": np.int32([FOREVER])}
    with ThreadPoolExecutor(len(endless)) as pool:
        runs = [
            pool.submit(
                model.run, model.signatures["spin"], inputs, cancellation=cancellation, timeout_s=90
            )
            for cancellation in endless[:2]
        ]
        for _ in range(5):
            found = model.run(model.signatures["rows"], {"x": np.float32([2])}, timeout_s=90)
            assert found["y"].tolist() == [3]
        assert not any(run.done() for run in runs)
        for cancellation, run in zip(endless, runs, strict=False):
            cancellation.cancel()
            with pytest.raises(RequestError) as caught:
                run.result(PATIENCE_S)
            assert caught.value.code == Code.CANCELLED
        endless[2].cancel()  # before it begins
        with pytest.raises(RequestError):
            model.run(model.signatures["spin"], inputs, cancellation=endless[2], timeout_s=90)
    few = {"loops": np.int32([3])}
    late = Cancellation()
    for _ in range(10):  # nothing is left behind in any place
        assert model.run(model.signatures["spin"], few, cancellation=late, timeout_s=90)[
            "done"
        ].tolist() == [1]
    late.cancel()


def test_a_cancellation_that_races_with_the_end_harms_no_later_run(model):
    inputs = {"loops": np.int32([20])}

    def race(seed):
        cancellation = Cancellation()
        timer = threading.Timer(0.0005 * (seed % 8), cancellation.cancel)
        timer.start()
        with contextlib.suppress(RequestError):
            model.run(model.signatures["spin"], inputs, cancellation=cancellation, timeout_s=90)
        timer.join()
        return model.run(model.signatures["spin"], inputs, timeout_s=90)["done"].tolist()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(race, range(60))) == [[1]] * 60


def test_others_are_answered_while_long_runs_go_on_and_end_with_their_clients(served):
    before = num_cancelled(served)
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
        until(lambda: num_cancelled(served) > before and not served.engine._scheduler._runs)
        until(lambda: not served.engine._scheduler._num_waiting)
        assert num_cancelled(served) - before <= 4  # those that waited never ran
        assert rest.predict({"x": [2.0]}, model="spinner")["y"].tolist() == [3]
        page = served.engine.metrics.page().decode()
    assert 'request_count_total{model_name="spinner",status="CANCELLED"} 6.0' in page


def test_a_call_that_its_client_cancels_ends(served, channel_to):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "spinner", "spin"
    request.inputs["loops"].CopyFrom(tf.make_tensor_proto(np.int32([FOREVER])))
    before = num_cancelled(served)
    with channel_to(served) as channel:
        call = PredictionServiceStub(channel).Predict.future(request)
        until(lambda: running(served))
        call.cancel()
        until(lambda: num_cancelled(served) > before)
        with pytest.raises(Exception, match="Deadline"):
            PredictionServiceStub(channel).Predict(request, timeout=0.3)
        until(lambda: not served.engine._scheduler._runs)


def test_a_request_may_not_ask_for_more_new_tokens(served):
    engine = served.engine
    for name in ("max_length", "max_new_tokens"):
        engine._check_new_tokens({name: np.int32([100, 1])})
        with pytest.raises(RequestError, match=f"{name} is 101 in row 1.*100.*--max-new-tokens"):
            engine._check_new_tokens({name: np.int32([1, 101])})
