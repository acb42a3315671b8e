"""The names of models that servers tell."""

import asyncio

import pytest

from keras_transformers.serving.gateway.servers import replicas
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec


class Transport:
    """A server that tells its models.

    Attributes:
        asked: how often it was asked for them.
        models: their names; None if it does not answer.
    """

    def __init__(self):
        self.asked, self.models = 0, ["a"]

    async def names(self, timeout_s):
        self.asked += 1
        if self.models is None:
            raise RequestError(Code.UNAVAILABLE, "nobody there")
        return self.models

    async def status(self, model, timeout_s):
        await self.names(timeout_s)
        return []


@pytest.mark.parametrize(("kept_s", "times"), [(60.0, 1), (0.0, 3)])
def test_they_are_kept_for_a_while(monkeypatch, kept_s, times):
    monkeypatch.setattr(replicas, "_NAMES_KEPT_S", kept_s)
    transport = Transport()
    servers = Servers([(Replicas([transport]), None)])

    async def requests():
        for _ in range(3):
            assert await servers.names() == ["a"]

    asyncio.run(requests())
    assert transport.asked == times


def test_models_keep_their_names_while_no_server_answers(monkeypatch):
    monkeypatch.setattr(replicas, "_NAMES_KEPT_S", 0.0)
    transport = Transport()
    servers = Servers([(Replicas([transport]), None)])

    async def requests():
        assert await servers.names() == ["a"]
        transport.models = None
        assert await servers.names() == ["a"]
        with pytest.raises(RequestError, match="UNAVAILABLE"):
            await servers.status(ModelSpec("a"), 1.0)
        with pytest.raises(RequestError, match="NOT_FOUND"):
            await servers.status(ModelSpec("b"), 1.0)

    asyncio.run(requests())


def test_before_the_first_answer_the_server_is_at_fault():
    transport = Transport()
    transport.models = None
    with pytest.raises(RequestError, match="UNAVAILABLE"):
        asyncio.run(Servers([(Replicas([transport]), None)]).names())
