"""A request that is abandoned in the gateway ends its run, wherever the model is."""

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keras_transformers.serving import BatchingOptions, Limits, ModelSettings, Server
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import Call
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.serving.server.backend import EngineBackend

PATIENCE_S = 60.0
CALL = Call(ModelSpec("spinner"), "spin", 10 * PATIENCE_S)
ENDLESS = {"loops": np.int32([2**31 - 1])}


@pytest.fixture(scope="module")
def server(publish, tmp_path_factory):
    base = tmp_path_factory.mktemp("spinner") / "spinner"
    publish(base, 1, 2.0)
    with Server(
        [ModelSettings("spinner", base)],
        rest_port=0,
        grpc_port=0,
        limits=Limits(timeout_s=10 * PATIENCE_S),
        batching=BatchingOptions(long_run_s=0.05),
    ) as running:
        assert running.wait_until_loaded(PATIENCE_S)
        yield running


def until(condition):
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def num_cancelled(server):
    name = "keras_transformers:serving:cancelled_runs_total"
    return server.engine.metrics._registry.get_sample_value(name)


@contextlib.contextmanager
def backend_of(place, server):
    if place == "engine":
        with ThreadPoolExecutor(2) as executor:
            yield EngineBackend(server.engine, executor)
        return
    target = {
        "REST": f"http://127.0.0.1:{server.rest_port}",
        "gRPC": f"127.0.0.1:{server.grpc_port}",
    }[place]
    replicas = Replicas([connect(Target.parse(target), ClientTls())])
    yield Servers([(replicas, {"spinner": "spinner"})])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["engine", "REST", "gRPC"])
def test_a_task_that_is_cancelled_ends_its_run(server, place, stream):
    before = num_cancelled(server)

    async def leave(backend):
        async def ask():
            if not stream:
                return await backend.predict(CALL, ENDLESS)
            return [piece async for piece in backend.stream(CALL, ENDLESS)]

        asking = asyncio.ensure_future(ask())
        await asyncio.to_thread(until, lambda: server.engine._scheduler._runs)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.to_thread(until, lambda: num_cancelled(server) == before + 1)
        await backend.close()

    with backend_of(place, server) as backend:
        asyncio.run(leave(backend))
    until(lambda: not server.engine._scheduler._runs)
