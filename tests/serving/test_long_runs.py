"""Long runs leave room for others, and end when nobody waits for their answers."""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tiny
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

import keras_transformers as kt
from keras_transformers.families.gpt.model import gpt
from keras_transformers.serving import BatchingOptions, Client, Limits, ModelSettings, Server
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.server.cancellation import Cancellation
from keras_transformers.serving.server.models import AVAILABLE, END, UNLOADING
from keras_transformers.serving.server.saved_models import SavedModel

FOREVER = 10**9  # loops
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Inputs:
    """The inputs of a signature, by column."""

    model: str
    signature: str
    columns: dict[str, np.ndarray]


ENDLESS = Inputs("spinner", "spin", {"loops": np.int32([FOREVER])})
SHORT = Inputs("spinner", "spin", {"loops": np.int32([2])})


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
    limits = Limits(timeout_s=10 * PATIENCE_S, max_new_tokens=100)  # no test waits for the timeout
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
    return [*server.engine._scheduler._runs, *server.engine._decoding._threads]


def cancelled(server):
    name = "keras_transformers:serving:cancelled_runs_total"
    return server.engine.metrics._registry.get_sample_value(name)


@contextlib.contextmanager
def left_alone(server, inputs=ENDLESS):
    """Sends an endless request by REST, and leaves after the block."""
    columns = {name: column.tolist() for name, column in inputs.columns.items()}
    body = json.dumps({"signature_name": inputs.signature, "inputs": columns}).encode()
    path, size = f"/v1/models/{inputs.model}:predict", len(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
        connection.sendall(head.encode() + body)
        yield connection


@contextlib.contextmanager
def called(server, inputs=ENDLESS, timeout_s=10 * PATIENCE_S):
    """Sends an endless request by gRPC; closes the connection after the block."""
    request = PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = inputs.model, inputs.signature
    for name, column in inputs.columns.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(column))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = PredictionServiceStub(channel).Predict.future(request, timeout=timeout_s)
        yield call  # which would be cancelled if nothing held it


def leaves_rest(server, inputs):
    with left_alone(server, inputs):
        until(lambda: running(server))


def leaves_grpc(server, inputs):
    with called(server, inputs):
        until(lambda: running(server))


def cancels_grpc(server, inputs):
    with called(server, inputs) as call:
        until(lambda: running(server))
        call.cancel()
        until(lambda: not running(server))


def waits_for_its_deadline(server, inputs):
    with called(server, inputs, timeout_s=1.0) as call:
        assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED


WAYS = [leaves_rest, leaves_grpc, cancels_grpc, waits_for_its_deadline]


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
        Client(f"127.0.0.1:{served.grpc_port}", timeout_s=PATIENCE_S) as rpc,
    ):
        with contextlib.ExitStack() as connections:
            for client in clients:
                connections.enter_context(client)
            until(lambda: len(running(served)) >= 2)
            for _ in range(10):
                assert rest.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]
                assert rpc.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]
            assert 2 <= len(served.engine._scheduler._runs) <= 3  # the others have not begun
        until(lambda: not served.engine._scheduler._num_waiting)  # those never run
        until(lambda: not running(served))
        assert rest.predict({"x": [2.0]}, model="other")["y"].tolist() == [3]


@pytest.mark.parametrize("cancel_first", [True, False])
def test_a_run_that_is_cancelled_ends_and_leaves_nothing_for_the_next(model, cancel_first):
    endless, signature = {"loops": np.int32([FOREVER])}, model.signatures["spin"]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):  # as many as runs may be in progress
            cancellations = [Cancellation(), Cancellation()]
            if cancel_first:
                cancellations[0].cancel()
            runs = [
                pool.submit(
                    model.run, signature, endless, timeout_s=10 * PATIENCE_S, cancellation=each
                )
                for each in cancellations
            ]
            for cancellation, run in zip(cancellations, runs, strict=True):
                cancellation.cancel()
                with pytest.raises(RequestError) as caught:
                    run.result(PATIENCE_S)
                assert caught.value.code == Code.CANCELLED
    for _ in range(6):
        cancellation = Cancellation()
        short = {"loops": np.int32([2])}
        outputs = model.run(signature, short, timeout_s=PATIENCE_S, cancellation=cancellation)
        assert outputs["done"].tolist() == [1]
        cancellation.cancel()  # too late, and without effect on the next


def test_only_signatures_with_a_loop_are_changed(model):
    assert set(model._controls) == {"spin"}


def test_a_cancelled_run_of_a_signature_without_a_loop_never_starts(model):
    cancellation = Cancellation()
    cancellation.cancel()
    rows, inputs = model.signatures["rows"], {"x": np.float32([2])}
    with pytest.raises(RequestError, match="cancelled"):
        model.run(rows, inputs, timeout_s=PATIENCE_S, cancellation=cancellation)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_whose_client_is_gone_ends(served, way):
    ends_with_its_client(served, way, ENDLESS, SHORT)


def ends_with_its_client(server, way, endless, short):
    until(lambda: not running(server))
    before = cancelled(server)
    way(server, endless)
    until(lambda: not running(server))
    if way is not waits_for_its_deadline:  # that may be TensorFlow's own
        until(lambda: cancelled(server) == before + 1)
    with called(server, short) as call:
        assert call.result(PATIENCE_S).outputs


def test_a_server_that_stops_waits_for_its_runs_no_longer_than_their_timeout(publish, tmp_path):
    publish(tmp_path / "spinner", 1, 2.0)
    server = Server(
        [ModelSettings("spinner", tmp_path / "spinner")],
        rest_port=0,
        grpc_port=0,
        limits=Limits(timeout_s=3.0),
    )
    server.start()
    assert server.wait_until_loaded(PATIENCE_S)
    with left_alone(server) as connection, called(server) as call:
        until(lambda: sum(len(run.tasks) for run in running(server)) == 2)  # or in one batch
        stopping = threading.Thread(target=server.stop, daemon=True)
        stopping.start()
        connection.settimeout(PATIENCE_S)
        assert b" 504 " in connection.recv(1000)
        assert call.code() != grpc.StatusCode.OK  # whichever is first: its deadline or the stop
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()
        assert not running(server)


@pytest.mark.slow
def test_a_version_is_unloaded_once_the_client_of_its_endless_run_has_left(publish, tmp_path):
    base = tmp_path / "spinner"
    publish(base, 1, 2.0)
    limits = Limits(timeout_s=10 * PATIENCE_S)
    with Server(
        [ModelSettings("spinner", base)],
        rest_port=0,
        grpc_port=0,
        limits=limits,
        poll_interval_s=0.05,
    ) as server:
        assert server.wait_until_loaded(PATIENCE_S)
        (old,) = server.engine.models["spinner"].versions()
        with left_alone(server):
            until(lambda: running(server))
            publish(base, 2, 3.0)
            until(lambda: old.state != AVAILABLE)
            assert old.state == UNLOADING  # its client still waits
        until(lambda: old.state == END)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A server of a tiny language model that never writes its end token."""
    base = tmp_path_factory.mktemp("writer")
    tokenizer = tiny.byte_pairs()
    model = tiny.lively(
        gpt(
            vocabulary_size=tokenizer.vocabulary_size,
            num_layers=1,
            num_heads=2,
            hidden_dim=16,
            max_sequence_length=60_000,
        )
    )
    embeddings = model.get_layer("token_embedding").embeddings  # the outputs' too
    rows = embeddings.numpy()
    rows[tokenizer.end_token_id] = 0
    embeddings.assign(rows)
    generator = kt.pipelines.TextGenerator(model, tokenizer, max_length=5, top_k=1)
    kt.export(generator, base, check=False)
    limits = Limits(timeout_s=10 * PATIENCE_S, max_new_tokens=60_000)
    settings = [ModelSettings("writer", base)]
    with Server(settings, rest_port=0, grpc_port=0, limits=limits) as server:
        assert server.wait_until_loaded(PATIENCE_S)
        yield server


def writing(tokens):
    options = {"temperature": np.float32([1]), "top_k": np.int32([1]), "top_p": np.float32([1])}
    texts = {"prompt": np.array(["two dogs"], object), "seed": np.int64([1])}
    return Inputs("writer", "generate", {**texts, "max_length": np.int32([tokens]), **options})


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_generation_whose_client_is_gone_ends(writer, way):
    ends_with_its_client(writer, way, writing(59_000), writing(3))


def test_a_request_may_not_ask_for_more_new_tokens(served):
    engine = served.engine
    for name in ("max_length", "max_new_tokens"):
        engine._check_new_tokens({name: np.int32([100, 1])})
        with pytest.raises(RequestError, match=f"{name} is 101 in row 1.*100.*--max-new-tokens"):
            engine._check_new_tokens({name: np.int32([1, 101])})
