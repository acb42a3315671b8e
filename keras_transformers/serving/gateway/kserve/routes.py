"""Defines the routes of the protocol's REST API, with Triton's binary tensors."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import Request, Response
from starlette.types import Receive, Scope

from keras_transformers.serving.gateway.apis import Asked, CheckedRequest, described_errors, router
from keras_transformers.serving.gateway.kserve import inference
from keras_transformers.serving.gateway.kserve.types import (
    AnswerTensor,
    InferAnswer,
    InferError,
    InferRequest,
    InputTensor,
    Live,
    ModelMetadata,
    ModelReady,
    Parameters,
    Ready,
    ServerMetadata,
)
from keras_transformers.serving.gateway.refusals import RefusalError, refusal
from keras_transformers.serving.protocol.kserve import tensors

__all__: list[str] = []

_JSON_LENGTH = "Inference-Header-Content-Length"  # bytes of the JSON before binary tensors
_Route = Callable[..., Any]


def error_shape(error: RefusalError) -> dict[str, str]:
    """Returns {error}."""
    return {"error": error.message}


class _Request(CheckedRequest):
    """A request whose body may have binary tensors after its JSON."""

    binary = b""  # what comes after the JSON

    def __init__(self, scope: Scope, receive: Receive) -> None:
        names = [name for name, _ in scope["headers"]]
        if _JSON_LENGTH.lower().encode() in names:
            # FastAPI reads bodies of JSON's type, or of none, and this one is JSON from here on.
            kept = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
            scope = {**scope, "headers": kept}
        super().__init__(scope, receive)

    def json_part(self, body: bytes) -> bytes:
        text = self.headers.get(_JSON_LENGTH)
        if text is None:
            return super().json_part(body)
        size = int(text) if text.isdecimal() and len(text) < 12 else -1
        if not 0 <= size <= len(body):
            raise refusal(
                f"{_JSON_LENGTH} is {text[:20]!r}, but the body has {len(body)} bytes: send how "
                "many of them are JSON",
                field=_JSON_LENGTH,
            )
        self.binary = body[size:]
        return body[:size]


routes = router(
    error_shape,
    request_class=_Request,
    prefix="/v2",
    tags=["KServe v2"],
    responses=described_errors(InferError),
)


@routes.get("")
async def server() -> ServerMetadata:
    """Describes the server."""
    return ServerMetadata.model_validate(inference.server_metadata())


@routes.get("/health/live")
async def live() -> Live:
    """Says that the server runs."""
    return Live(live=True)


@routes.get("/health/ready")
async def ready(models: Asked, response: Response) -> Ready:
    """Says whether all models answer; 503 if not."""
    is_ready = await models.are_ready()
    response.status_code = 200 if is_ready else 503
    return Ready(ready=is_ready)


def _of_model(add: Callable[..., Any], path: str, **options: Any) -> Callable[[_Route], _Route]:
    """Adds a route twice: for a model's latest version, and for the one in the path."""

    def register(route: _Route) -> _Route:
        add(f"/models/{{name}}{path}", **options)(route)
        add(f"/models/{{name}}/versions/{{version}}{path}", **options)(route)
        return route

    return register


@_of_model(routes.get, "")
async def model_metadata(name: str, models: Asked, version: str | None = None) -> ModelMetadata:
    """Describes a model."""
    return ModelMetadata.model_validate(await inference.model_metadata(models, name, version))


@_of_model(routes.get, "/ready")
async def model_ready(
    name: str, models: Asked, response: Response, version: str | None = None
) -> ModelReady:
    """Says whether a model answers; 503 if not."""
    is_ready = await models.is_ready(inference.versioned(name, version))
    response.status_code = 200 if is_ready else 503
    return ModelReady(name=name, ready=is_ready)


@_of_model(routes.post, "/infer", response_model=InferAnswer)
async def infer(
    name: str, body: InferRequest, models: Asked, request: Request, version: str | None = None
) -> Response:
    """Runs a signature."""
    model = await models.find(inference.versioned(name, version))
    parameters = body.parameters or Parameters()
    assert isinstance(request, _Request)
    # Large tensors take long to read, and other requests are not to wait.
    inputs = await asyncio.to_thread(_inputs, body.inputs, request.binary)
    outputs = await inference.infer(
        model,
        inputs,
        [output.name for output in body.outputs or ()],
        parameters.model_dump(),
    )
    wanted = {
        output.name: output.parameters.binary_data
        for output in body.outputs or ()
        if output.parameters is not None and output.parameters.binary_data is not None
    }
    written, parts = [], []
    for output, array in outputs.items():
        tensor = AnswerTensor(
            name=output, datatype=tensors.datatype(array.dtype), shape=list(array.shape)
        )
        if wanted.get(output, parameters.binary_data_output):
            parts.append(tensors.to_binary(array))
            tensor.parameters = {"binary_data_size": len(parts[-1])}
        else:
            tensor.data = tensors.to_json(array)
        written.append(tensor)
    answer = InferAnswer(model_name=name, model_version=version, id=body.id, outputs=written)
    text = json.dumps(answer.model_dump(exclude_none=True), ensure_ascii=False).encode()
    if not parts:
        return Response(text, media_type="application/json")
    return Response(
        b"".join([text, *parts]),
        media_type="application/octet-stream",
        headers={_JSON_LENGTH: str(len(text))},
    )


def _inputs(wanted: list[InputTensor], binary: bytes) -> list[inference.Input]:
    """Returns the inputs of a request.

    Args:
        wanted: the inputs in the JSON.
        binary: what comes after it.
    """
    inputs, start = [], 0
    for index, tensor in enumerate(wanted):
        size = None if tensor.parameters is None else tensor.parameters.binary_data_size
        place = f"inputs.{index}"
        if (size is None) == (tensor.data is None):
            raise refusal(
                f"{place}.data: send either it or parameters.binary_data_size",
                field=f"{place}.data",
            )
        try:
            array: np.ndarray
            if tensor.data is not None:
                array = tensors.from_json(tensor.data, tensor.datatype, tensor.shape)
            else:
                assert size is not None
                part, start = binary[start : start + size], start + size
                array = tensors.from_binary(part, tensor.datatype, tensor.shape)
        except ValueError as error:
            raise refusal(
                f"{place}.data of {tensor.name[:200]!r}: {error}", field=f"{place}.data"
            ) from None
        inputs.append(inference.Input(tensor.name, array, place))
    if start != len(binary):
        raise refusal(
            f"the binary inputs take {start} bytes, but {len(binary)} come after the JSON",
            field="inputs",
        )
    return inputs
