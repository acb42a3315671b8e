"""What a gateway holds at the same time."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from keras_transformers.serving import Limits, ModelSettings, Server
from keras_transformers.serving.client.transport import Call
from keras_transformers.serving.gateway import process
from keras_transformers.serving.gateway.apis import Body, Room
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.refusals import RefusalError
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.serving.server.backend import EngineBackend


def test_a_room_admits_so_many_requests_and_bytes():
    room = Room(max_requests=2, max_bytes=10)
    with room.place(6):
        with pytest.raises(RefusalError, match="6 bytes.*later"), room.place(5):
            pass
        with room.place(4), room.place(0):
            with pytest.raises(RefusalError, match="2 requests.*later") as error, room.place(1):
                pass
            assert error.value.status == 429
    with room.place(10):
        pass


def test_beyond_its_requests_a_gateway_refuses_at_once(simple):
    simple.holding, limits = True, Limits(max_requests=1, timeout_s=20.0)
    with (
        Gateway(simple, port=0, limits=limits) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=15) as client,
    ):
        ends = threading.Event()

        def wait():
            with pytest.raises(httpx.ReadTimeout):
                client.post("/embed", json={"inputs": "a"}, timeout=1.5)
            ends.set()

        threading.Thread(target=wait).start()
        while not simple.calls:
            time.sleep(0.01)
        refused = client.post("/embed", json={"inputs": "b"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        assert refused.json()["error_type"] == "Overloaded"
        assert client.get("/v2/health/live").status_code == 200  # probes have no body
        assert ends.wait(10)
        simple.holding = False
        assert simple.abandoned.wait(10)
        assert client.post("/embed", json={"inputs": "b"}).status_code == 200


def test_an_event_loop_that_hangs_keeps_its_socket(simple, monkeypatch, caplog):
    """It stops listening by itself when it goes on: nobody else closes what it watches."""
    hangs, goes_on = threading.Event(), threading.Event()

    async def hang():
        hangs.set()
        goes_on.wait(30)
        return ["embedder"]

    monkeypatch.setattr(simple, "names", hang)
    monkeypatch.setattr(process, "_PATIENCE_S", 0.01)
    gateway = Gateway(simple, port=0, limits=Limits(timeout_s=0.01))
    gateway.start()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.get, f"http://127.0.0.1:{gateway.port}/v1/models", timeout=30)
        assert hangs.wait(30)
        gateway.stop()
        assert "the gateway did not stop" in caplog.text
        goes_on.set()
        asked.exception()
    gateway._thread.join(30)
    assert not gateway._thread.is_alive()
    assert gateway._listening.fileno() == -1


def subclasses(kind):
    for one in kind.__subclasses__():
        yield from (one, *subclasses(one))


def lists(schema):
    """Yields the lists in a schema of pydantic's core whose items may be wrong."""
    if isinstance(schema, dict):
        if schema.get("type") == "list" and schema["items_schema"]["type"] != "any":
            yield schema
        # What a field takes before it is converted is only a description.
        schema = [part for key, part in schema.items() if key != "json_schema_input_schema"]
    for inner in schema if isinstance(schema, list | tuple) else ():
        yield from lists(inner)


def test_every_list_of_a_request_stops_at_its_first_wrong_item():
    counts = {}
    for kind in subclasses(Body):
        for schema in lists(kind.__pydantic_core_schema__):
            assert schema.get("fail_fast"), kind
            counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
    assert {"ChatRequest", "RerankRequest", "RequestV2", "InferRequest"} <= counts.keys()


def test_the_runs_of_one_request_wait_for_its_own_place(tmp_path, publish):
    """A request with many texts is several runs, of which a small server admits one at a time."""
    publish(tmp_path / "m", 1, 2.0)
    settings, limits = [ModelSettings("m", tmp_path / "m")], Limits(max_requests=1)
    with Server(settings, rest_port=0, grpc_port=None, limits=limits) as server:
        assert server.wait_until_loaded(60)
        backend = EngineBackend(server.engine, ThreadPoolExecutor(4))
        call = Call(ModelSpec("m"), "rows", 30.0)

        async def ask():
            runs = (backend.predict(call, {"x": np.float32([x])}) for x in range(4))
            return await asyncio.gather(*runs)

        answers = asyncio.run(ask())
    assert [answer["y"].tolist() for answer in answers] == [[2.0], [2.5], [3.0], [3.5]]
