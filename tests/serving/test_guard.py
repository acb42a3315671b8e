"""API keys and their limits, probes, request ids: in the local server and in the gateway."""

import asyncio
import hashlib
import logging
import time
from concurrent import futures

import grpc
import httpx
import pytest

from keras_transformers.serving import Client, Code, ModelSettings, RequestError, Server
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol import request_ids
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.serving.server import keys as keys_module
from keras_transformers.serving.server.keys import ApiKeys, read_keys

GATEWAY_KEY = "of-the-gateway"


def entry(name, key, **limits):
    lines = [f"[keys.{name}]", f'sha256 = "{hashlib.sha256(key.encode()).hexdigest()}"']
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in limits.items()), ""])


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(
        entry("gateway", GATEWAY_KEY)
        + entry("alice", "secret")
        + entry("slow", "few", requests_per_minute=2)
        + entry("single", "one", max_requests=1)
    )
    return file


@pytest.fixture(scope="module")
def served(tmp_path_factory, publish, key_file):
    base = tmp_path_factory.mktemp("m")
    publish(base, 1, 2.0)
    models = [ModelSettings("m", base)]
    with Server(models, rest_port=0, grpc_port=0, api_keys=key_file, log_requests=True) as server:
        assert server.wait_until_loaded(60)
        yield server


def backend(*addresses, key=GATEWAY_KEY, names=("m",)):
    transports = [connect(Target.parse(text), ClientTls(), key) for text in addresses]
    return Servers([(Replicas(transports), {name: name for name in names})])


@pytest.fixture(scope="module", params=["rest", "grpc"])
def gateway(request, served, key_file):
    """The URL of a gateway before the server, over REST or gRPC, with the same keys."""
    address = (
        f"http://127.0.0.1:{served.rest_port}"
        if request.param == "rest"
        else f"127.0.0.1:{served.grpc_port}"
    )
    with Gateway(backend(address), port=0, api_keys=key_file, log_requests=True) as running:
        yield f"http://127.0.0.1:{running.port}"


@pytest.fixture(scope="module")
def url(served):
    return f"http://127.0.0.1:{served.rest_port}"


@pytest.fixture(params=["rest", "grpc"])
def target(request, served):
    rest = f"http://127.0.0.1:{served.rest_port}"
    return rest if request.param == "rest" else f"127.0.0.1:{served.grpc_port}"


def test_a_key_admits(target):
    with Client(target, api_key="secret") as client:
        assert client.predict({"x": [1.0]}, model="m")["y"].tolist() == [2.5]


@pytest.mark.parametrize("key", [None, "guess"])
def test_without_a_key_that_is_in_the_file(target, key):
    with Client(target, api_key=key) as client, pytest.raises(RequestError) as caught:
        client.predict({"x": [1.0]}, model="m")
    assert caught.value.code == Code.UNAUTHENTICATED
    assert ("Authorization: Bearer KEY" if key is None else "unknown") in caught.value.message


def test_a_key_may_come_as_x_api_key(url, gateway):
    for place in (f"{url}/v1/models/m", f"{gateway}/v1/models"):
        assert httpx.get(place, headers={"x-api-key": "secret"}).status_code == 200
        assert httpx.get(place, headers={"authorization": "bearer  secret"}).status_code == 200
        assert httpx.get(place, headers={"authorization": "secret"}).status_code == 401


def test_every_api_refuses_in_its_own_shape(url, gateway):
    refused = httpx.post(f"{url}/v1/models/m:predict", json={"instances": [1.0]})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert list(refused.json()) == ["error"]
    assert isinstance(refused.json()["error"], str)
    for place in (url, gateway):
        refused = httpx.get(f"{place}/v1/models")
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert httpx.get(f"{place}/openapi.json").status_code == 401
        assert httpx.get(f"{place}/nowhere").status_code == 401


def test_requests_per_minute(key_file):
    keys = ApiKeys(key_file)
    key = keys.check({"x-api-key": "few"})
    for _ in range(2):
        with keys.admit(key):
            pass
    with pytest.raises(RequestError) as caught, keys.admit(key):
        pass
    assert caught.value.code == Code.RESOURCE_EXHAUSTED
    assert "2 requests per minute" in caught.value.message
    assert 29 < caught.value.retry_after_s <= 30


def test_requests_in_progress(served, target):
    with Client(target, api_key="one", max_attempts=1) as client:
        client.signatures("m")
        with futures.ThreadPoolExecutor(3) as pool:
            asked = [
                pool.submit(client.predict, {"loops": [3000]}, model="m", signature_name="spin")
                for _ in range(3)
            ]
            errors = [future.exception() for future in asked]
        refused = [error for error in errors if error is not None]
        assert 1 <= len(refused) <= 2
        for error in refused:
            assert error.code == Code.RESOURCE_EXHAUSTED
            assert "API key" in error.message
            assert error.retry_after_s == 1
            assert error.request_id
        assert client.predict({"x": [1.0]}, model="m")["y"].tolist() == [2.5]  # none is held


def test_a_limit_is_said_in_openais_shape(gateway):
    few = {"authorization": "Bearer few"}
    answers = [httpx.get(f"{gateway}/v1/models", headers=few) for _ in range(4)]
    last = answers[-1]
    assert last.status_code == 429
    assert last.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(last.headers["retry-after"]) <= 30


def test_a_client_waits_as_long_as_it_is_told(served, monkeypatch):
    from keras_transformers.serving.client import asking

    pauses = []
    monkeypatch.setattr(asking, "sleep", pauses.append)
    with Client(f"http://127.0.0.1:{served.rest_port}") as client:

        def refuse(spec, timeout_s):
            raise RequestError(Code.RESOURCE_EXHAUSTED, "busy", retry_after_s=7.0)

        monkeypatch.setattr(client._transport, "status", refuse)
        with pytest.raises(RequestError):
            client.status("m")
    assert len(pauses) >= 2
    assert all(7.0 < pause < 10.0 for pause in pauses)


def test_probes_need_no_key(url, gateway):
    for place in (url, gateway):
        for path in ("/healthz", "/readyz"):
            answer = httpx.get(f"{place}{path}", headers={"host": "10.0.0.7"})
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
            assert httpx.head(f"{place}{path}").status_code == 200
    assert httpx.post(f"{url}/healthz").status_code == 401


def test_a_gateway_is_ready_when_its_servers_are(served, tmp_path):
    with Server([ModelSettings("later", tmp_path)], rest_port=0, grpc_port=None) as empty:
        place = f"http://127.0.0.1:{empty.rest_port}"
        answer = httpx.get(f"{place}/readyz")
        assert (answer.status_code, answer.json()["error"]) == (
            503,
            "not ready: no version answers of later",
        )
        assert httpx.get(f"{place}/healthz").status_code == 200
    for servers, problem in (
        (backend("http://127.0.0.1:9"), "does not answer"),
        (backend("127.0.0.1:9"), "does not answer"),
        (backend(f"http://127.0.0.1:{served.rest_port}", key="guess"), "refuses the gateway"),
        (backend(f"http://127.0.0.1:{served.rest_port}", names=("m", "gone")), "gone"),
    ):
        with Gateway(servers, port=0) as running:
            answer = httpx.get(f"http://127.0.0.1:{running.port}/readyz", timeout=20)
            assert answer.status_code == 503
            assert problem in answer.json()["error"]
            assert "127.0.0.1" not in answer.text
            asked = httpx.get(f"http://127.0.0.1:{running.port}/v1/models/m", timeout=20)
            assert asked.status_code in (200, 500, 503)  # 200: another model is missing
            assert "127.0.0.1" not in asked.text
            assert httpx.get(f"http://127.0.0.1:{running.port}/healthz").status_code == 200


def test_an_id_is_echoed_or_made(url, gateway):
    sent = {"authorization": "Bearer secret", "x-request-id": "order-17"}
    for place in (f"{url}/v1/models/m", f"{gateway}/v1/models", f"{url}/nowhere"):
        assert httpx.get(place, headers=sent).headers["x-request-id"] == "order-17"
        made = [httpx.get(place).headers["x-request-id"] for _ in range(2)]
        assert made[0] != made[1]
        assert len(made[0]) == 32
        long = httpx.get(place, headers={"x-request-id": "9" * 200}).headers["x-request-id"]
        assert len(long) == 32


def test_the_log_of_a_request_has_its_id_and_the_keys_name(gateway):
    handler = logging.StreamHandler()
    handler.setFormatter(request_ids.RequestFormatter("%(message)s"))
    lines = []
    handler.emit = lambda record: lines.append(handler.format(record))
    logger = logging.getLogger("keras_transformers.serving")
    logger.addHandler(handler)
    level, _ = logger.level, logger.setLevel(logging.INFO)
    try:
        sent = {"authorization": "Bearer secret", "x-request-id": "order-18"}
        assert httpx.get(f"{gateway}/v1/models/m", headers=sent).status_code == 200
        deadline = time.monotonic() + 10
        while "GET /v1/models/m: 200" not in "".join(lines) and time.monotonic() < deadline:
            time.sleep(0.01)  # the line comes after the answer
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
    (at_gateway,) = [line for line in lines if line.startswith("GET /v1/models/m: 200")]
    assert at_gateway.endswith(", key alice [request order-18]")


def test_a_gateway_passes_the_id_on(target):
    async def ask():
        request_ids.current.set("order-20")
        servers = backend(target)
        try:
            return await servers.signatures(ModelSpec("m", version=9), 10)
        finally:
            await servers.close()

    with pytest.raises(RequestError) as caught:
        asyncio.run(ask())
    assert (caught.value.code, caught.value.request_id) == (Code.NOT_FOUND, "order-20")


def test_an_error_of_a_client_has_the_id(target):
    with Client(target, api_key="secret") as client:
        client.signatures("m")
        token = request_ids.current.set("order-19")
        try:
            with pytest.raises(RequestError) as caught:
                client.predict({"x": [-1.0]}, model="m", signature_name="checked")
        finally:
            request_ids.current.reset(token)
    assert caught.value.request_id == "order-19"
    assert str(caught.value).endswith("[request order-19]")


def test_health_of_grpc_needs_no_key(served):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=10
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_key_is_withdrawn_without_a_restart(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(keys_module, "_LOOK_S", 0.0)
    file = tmp_path / "keys.toml"
    file.write_text(entry("alice", "secret") + entry("bob", "other"))
    keys = ApiKeys(file)
    assert keys.check({"x-api-key": "secret"}).name == "alice"
    file.write_text("[keys.")
    assert keys.check({"x-api-key": "secret"}).name == "alice"
    assert "keeping the keys" in caplog.text
    file.write_text(entry("bob", "other"))
    with pytest.raises(RequestError, match="unknown"):
        keys.check({"x-api-key": "secret"})
    assert keys.check({"x-api-key": "other"}).name == "bob"


def test_a_bucket_fills_again(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    file = tmp_path / "keys.toml"
    file.write_text(entry("a", "k", requests_per_minute=60))
    keys = ApiKeys(file)
    key = keys.check({"x-api-key": "k"})

    def admitted():
        try:
            with keys.admit(key):
                return True
        except RequestError:
            return False

    assert [admitted() for _ in range(61)] == [True] * 60 + [False]
    now[0] += 1
    assert [admitted(), admitted()] == [True, False]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no keys"),
        ("keys = 3", "keys is 3: expected a table"),
        ("[keys]\na = 3", "keys.a is 3: expected a table"),
        ("[keys.a]\n", "[keys.a]: sha256 is missing"),
        ("[keys.a]\nsha256 = 'secret'", "[keys.a]: sha256 is not 64 hexadecimal digits"),
        (entry("a", "k", requests_per_minute=0), "[keys.a]: requests_per_minute is 0"),
        (entry("a", "k", max_requests=1.5), "[keys.a]: max_requests is 1.5: expected an integer"),
        (entry("a", "k", burst=1), "[keys.a]: burst is unknown"),
        (entry("a", "k") + entry("b", "k"), "another table has this key"),
        ("[keys", "not TOML"),
    ],
)
def test_a_file_of_keys_that_is_wrong(tmp_path, text, problem):
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_keys(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value).removeprefix(str(file))
