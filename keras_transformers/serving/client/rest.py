"""Defines the client's REST transport, which needs no TensorFlow."""

from collections.abc import Iterator, Mapping, Sequence

import httpx
import numpy as np

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.client import rest_messages
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
    credentials,
    outgoing,
)
from keras_transformers.serving.protocol.signatures import ModelSpec


class RestTransport:
    """Calls TF Serving's REST API; `transport.Transport` describes the methods.

    Args:
        url: the server's URL.
        tls: the files for TLS; None for no encryption.
        api_key: the key to show; None for none.
    """

    def __init__(self, url: str, tls: ClientTls | None, api_key: str | None = None) -> None:
        verify = False if tls is None else tls.context()
        self._http = httpx.Client(base_url=url, verify=verify, headers=credentials(api_key))
        self._http.event_hooks["request"].append(_pass_on)

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        return rest_messages.read_outputs(self._send(rest_messages.predict(call, inputs)), outputs)

    def stream(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> Iterator[dict[str, np.ndarray]]:
        request = rest_messages.stream(call, inputs)
        with (
            rest_messages.request_errors(f"{self._http.base_url}", request.timeout_s),
            self._http.stream(**request.arguments()) as response,
        ):
            if not rest_messages.has_events(response):
                response.read()
                answer = rest_messages.read(response, request.timeout_s)
                yield rest_messages.read_outputs(answer, outputs)
                return
            for line in response.iter_lines():
                if (part := rest_messages.read_event(line, request.timeout_s)) is not None:
                    yield rest_messages.read_outputs(part, outputs)

    def classify(  # noqa: D102
        self, call: Call, examples: Sequence[Features]
    ) -> list[list[tuple[str, float]]]:
        answer = self._send(rest_messages.with_examples("classify", call, examples))
        return [[(label, score) for label, score in row] for row in answer["results"]]

    def regress(self, call: Call, examples: Sequence[Features]) -> list[float]:  # noqa: D102
        return self._send(rest_messages.with_examples("regress", call, examples))["results"]

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        return rest_messages.read_status(self._send(rest_messages.status(model, timeout_s)))

    def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        return rest_messages.read_signatures(self._send(rest_messages.metadata(model, timeout_s)))

    def close(self) -> None:  # noqa: D102
        self._http.close()

    def _send(self, request: rest_messages.Request) -> Json:
        return rest_messages.read(self._respond(request), request.timeout_s)

    def _respond(self, request: rest_messages.Request) -> httpx.Response:
        with rest_messages.request_errors(f"{self._http.base_url}", request.timeout_s):
            return self._http.request(**request.arguments())


def _pass_on(request: httpx.Request) -> None:
    request.headers.update(outgoing())
