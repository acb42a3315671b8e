"""Requests to one of several servers with the same models, and to another if it does not answer."""

import asyncio

import numpy as np
import pytest

from keras_transformers.serving.client.transport import Call, SignatureInfo, TensorSpec
from keras_transformers.serving.gateway.servers import replicas
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec

MODEL = ModelSpec("m")
CALL = Call(MODEL, "serving_default", 5.0)
INPUTS = {"text": np.array([b"a"], object)}


class Transport:
    """A server that answers with its name.

    Attributes:
        asked: how many predictions and streams it was asked for.
        described: how often it was asked for signatures.
        failure: the code that it fails with; None if it answers.
        fails_after: how many pieces of a stream come before the failure.
        gate: what an answer waits for; None if it does not wait.
    """

    def __init__(self, name):
        self.name, self.asked, self.described = name, 0, 0
        self.failure, self.fails_after, self.gate = None, 0, None

    async def predict(self, call, inputs, outputs):
        self.asked += 1
        assert 0 < call.timeout_s <= CALL.timeout_s
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise RequestError(self.failure, f"{self.name} fails")
        return {"text": self.name}

    async def stream(self, call, inputs, outputs):
        self.asked += 1
        for piece in range(3):
            if self.failure is not None and piece == self.fails_after:
                raise RequestError(self.failure, f"{self.name} fails")
            yield {"text": f"{self.name}{piece}"}

    async def signatures(self, model, timeout_s):
        self.described += 1
        spec = {"text": TensorSpec(np.dtype(object), (None,))}
        return {"serving_default": SignatureInfo("tensorflow/serving/predict", spec, spec)}


@pytest.fixture
def servers():
    return [Transport("a"), Transport("b"), Transport("c")]


def run(servers, requests):
    async def in_loop():
        return await requests(Replicas(servers))

    return asyncio.run(in_loop())


async def answer(group):
    return (await group.predict(CALL, INPUTS))["text"]


async def streamed(group):
    return [piece["text"] async for piece in group.stream(CALL, INPUTS)]


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED])
def test_what_a_server_does_not_accept_goes_to_another(servers, code):
    servers[0].failure = servers[1].failure = code
    assert run(servers, answer) == "c"
    assert [server.asked for server in servers] == [1, 1, 1]
    assert run(servers, streamed) == ["c0", "c1", "c2"]


def test_if_none_accepts_it_each_is_asked_once(servers):
    for server in servers:
        server.failure = Code.UNAVAILABLE
    for request in (answer, streamed):
        with pytest.raises(RequestError, match="UNAVAILABLE: c fails"):
            run(servers, request)
    assert [server.asked for server in servers] == [2, 2, 2]


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.DEADLINE_EXCEEDED, Code.INTERNAL])
def test_what_a_server_has_accepted_is_not_repeated(servers, code):
    servers[0].failure = code
    for request in (answer, streamed):
        with pytest.raises(RequestError, match=f"{code.name}: a fails"):
            run(servers, request)
    assert [server.asked for server in servers] == [2, 0, 0]


def test_a_stream_does_not_begin_again_after_its_first_piece(servers):
    servers[0].failure, servers[0].fails_after = Code.UNAVAILABLE, 1
    pieces = []

    async def read(group):
        async for piece in group.stream(CALL, INPUTS):
            pieces.append(piece["text"])

    with pytest.raises(RequestError, match="a fails"):
        run(servers, read)
    assert (pieces, servers[1].asked) == (["a0"], 0)


def test_a_server_that_did_not_answer_is_asked_last_for_a_while(servers, monkeypatch):
    servers[0].failure = Code.UNAVAILABLE

    async def requests(group):
        answers = [await answer(group)]
        servers[0].failure = None
        answers += [await answer(group)]
        monkeypatch.setattr(replicas.time, "monotonic", lambda: later)
        return [*answers, await answer(group)]

    later = replicas.time.monotonic() + 2 * replicas._REST_S
    assert run(servers, requests) == ["b", "b", "a"]


def test_a_request_goes_to_the_server_with_the_fewest(servers):
    async def requests(group):
        for server in servers[:2]:
            server.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(answer(group)) for _ in range(2)]
        await asyncio.sleep(0)
        answers = [await asyncio.wait_for(answer(group), 5)]
        for server in servers[:2]:
            server.gate.set()
        return [*answers, *await asyncio.gather(*waiting)]

    assert run(servers, requests) == ["c", "a", "b"]


def test_signatures_are_asked_again_after_a_refusal(servers):
    async def requests(group):
        await answer(group)
        await answer(group)
        described = servers[0].described
        servers[0].failure = Code.INVALID_ARGUMENT
        with pytest.raises(RequestError):
            await answer(group)
        servers[0].failure = None
        await answer(group)
        return described, servers[0].described

    assert run(servers, requests) == (1, 2)
