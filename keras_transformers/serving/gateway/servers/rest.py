"""Asks a server over REST, which needs no TensorFlow."""

from collections.abc import AsyncIterator, Mapping

import httpx

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.client import rest_messages
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import (
    Call,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    credentials,
    outgoing,
)
from keras_transformers.serving.gateway.servers.transport import Outputs
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec


class AsyncRestTransport:
    """Calls TF Serving's REST API; `transport.AsyncTransport` describes the methods.

    Args:
        url: the server's URL.
        tls: the files for TLS; None for no encryption.
        api_key: the key to show; None for none.
    """

    def __init__(self, url: str, tls: ClientTls | None, api_key: str | None = None) -> None:
        verify = False if tls is None else tls.context()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(
            base_url=url, verify=verify, limits=limits, headers=credentials(api_key)
        )
        self._http.event_hooks["request"].append(_pass_on)

    async def predict(  # noqa: D102
        self, call: Call, inputs: Arrays, outputs: Mapping[str, TensorSpec]
    ) -> Outputs:
        answer = await self._send(rest_messages.predict(call, inputs))
        return rest_messages.read_outputs(answer, outputs)

    async def stream(  # noqa: D102
        self, call: Call, inputs: Arrays, outputs: Mapping[str, TensorSpec]
    ) -> AsyncIterator[Outputs]:
        request = rest_messages.stream(call, inputs)
        with rest_messages.request_errors(f"{self._http.base_url}", request.timeout_s):
            async with self._http.stream(**request.arguments()) as response:
                if not rest_messages.has_events(response):
                    await response.aread()
                    answer = rest_messages.read(response, request.timeout_s)
                    yield rest_messages.read_outputs(answer, outputs)
                    return
                async for line in response.aiter_lines():
                    if (part := rest_messages.read_event(line, request.timeout_s)) is not None:
                        yield rest_messages.read_outputs(part, outputs)

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        return rest_messages.read_status(await self._send(rest_messages.status(model, timeout_s)))

    async def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        answer = await self._send(rest_messages.metadata(model, timeout_s))
        return rest_messages.read_signatures(answer)

    async def names(self, timeout_s: float) -> list[str] | None:  # noqa: D102
        try:
            answer = await self._send(rest_messages.Request("GET", "/v1/models", timeout_s))
        except RequestError as error:
            if error.code == Code.UNAVAILABLE:
                raise
            return None  # TF Serving has no such request
        return [entry["id"] for entry in answer.get("data", [])]

    async def close(self) -> None:  # noqa: D102
        await self._http.aclose()

    async def _send(self, request: rest_messages.Request) -> Json:
        with rest_messages.request_errors(f"{self._http.base_url}", request.timeout_s):
            response = await self._http.request(**request.arguments())
        return rest_messages.read(response, request.timeout_s)


async def _pass_on(request: httpx.Request) -> None:
    request.headers.update(outgoing())
