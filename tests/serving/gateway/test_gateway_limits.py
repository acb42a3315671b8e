"""What a gateway holds at the same time."""

import threading
import time

import httpx
import pytest

from keras_transformers.serving import Limits
from keras_transformers.serving.gateway.apis import Room
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.refusals import RefusalError


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
