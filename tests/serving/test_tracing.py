"""Traces go from the gateway through its backends to the batch, and cost nothing when off."""

import asyncio
import sys
import time

import httpx
import numpy as np
import pytest

from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.serving import Client, ModelSettings, Server
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import Call
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol import tracing
from keras_transformers.serving.protocol.signatures import ModelSpec

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_off_it_imports_and_adds_nothing():
    with tracing.span("a", "server", parent={"traceparent": PARENT}) as span:
        assert span is None
        assert tracing.headers() == {}
    tracing.record("b", 0.0, 1.0)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(MissingExtraError, match=r"keras-transformers\[tracing\]"):
        tracing.start("http://127.0.0.1:4318/v1/traces", service="s")
    with pytest.raises(ValueError, match="'127.0.0.1:4318'.*http://"):
        tracing.start("127.0.0.1:4318", service="s")


@pytest.fixture
def spans():
    """Returns a function that returns the spans recorded so far, by name."""
    reason = "needs OpenTelemetry: pip install -e .[tracing]"
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=reason)
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield lambda: {span.name: span for span in exporter.get_finished_spans()}
    tracing.use(None)


@pytest.fixture(scope="module")
def served(tmp_path_factory, publish):
    base = tmp_path_factory.mktemp("m")
    publish(base, 1, 2.0)
    with Server([ModelSettings("m", base)], rest_port=0, grpc_port=0) as server:
        assert server.wait_until_loaded(60)
        yield server


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_from_a_gateways_request_to_the_batch(served, spans, protocol):
    port = served.rest_port if protocol == "rest" else served.grpc_port
    target = f"{'http://' if protocol == 'rest' else ''}127.0.0.1:{port}"

    async def ask():
        servers = Servers([(Replicas([connect(Target.parse(target), ClientTls())]), {"m": "m"})])
        call = Call(ModelSpec("m"), "rows", 20.0)
        with tracing.span("route", "server", parent={"traceparent": PARENT}):
            answer = await servers.predict(call, {"x": np.ones(2, np.float32)})
        await servers.close()
        return answer

    assert asyncio.run(ask())["y"].tolist() == [2.5, 2.5]
    name = "POST" if protocol == "rest" else "tensorflow.serving.PredictionService/Predict"
    deadline = time.monotonic() + 10
    while name not in (recorded := spans()) and time.monotonic() < deadline:
        time.sleep(0.01)  # a server ends its span after the answer
    server = recorded[name]
    trace = int(PARENT.split("-")[1], 16)
    assert {span.context.trace_id for span in recorded.values()} == {trace}
    assert recorded["route"].parent.span_id == int(PARENT.split("-")[2], 16)
    assert server.parent.span_id == recorded["backend request"].context.span_id
    for name in ("queue wait", "batch run"):
        assert recorded[name].parent.span_id == server.context.span_id
    run = recorded["batch run"]
    assert dict(run.attributes) == {"requests": 1, "model": "m", "signature": "rows", "rows": 2}
    assert recorded["queue wait"].end_time <= run.start_time + 1_000_000
    assert run.start_time < run.end_time <= server.end_time + 1_000_000


def test_a_route_of_the_gateway(served, spans):
    target = Target.parse(f"http://127.0.0.1:{served.rest_port}")
    servers = Servers([(Replicas([connect(target, ClientTls())]), {"m": "m"})])
    with Gateway(servers, port=0) as running:
        headers = {"traceparent": PARENT, "x-request-id": "order-1"}
        url = f"http://127.0.0.1:{running.port}/v1/models/m"
        assert httpx.get(url, headers=headers).status_code == 200
    routes = [span for name, span in spans().items() if "/v1/models/{name" in name]
    assert routes[0].attributes["http.response.status_code"] == 200
    assert routes[0].attributes["request_id"] == "order-1"
    assert f"{routes[0].context.trace_id:032x}" == PARENT.split("-")[1]


def test_an_error_is_the_spans_status(served, spans):
    target = f"127.0.0.1:{served.grpc_port}"
    with Client(target) as client, pytest.raises(OSError, match="NOT_FOUND"):
        client.status("nobody")
    deadline, name = time.monotonic() + 10, "tensorflow.serving.ModelService/GetModelStatus"
    while name not in spans() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not spans()[name].status.is_ok
