"""Implements the protocol's gRPC API."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import numpy as np

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.gateway.apis import Room
from keras_transformers.serving.gateway.backend import Models
from keras_transformers.serving.gateway.kserve import inference
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.kserve import messages as converting
from keras_transformers.serving.protocol.kserve.service import METHODS, SERVICE, messages
from keras_transformers.serving.protocol.kserve.signatures import SIGNATURE_NAME
from keras_transformers.serving.server.grpc_server import answered

_PARAMETERS = (SIGNATURE_NAME, "content_type", "binary_data_output")
# Runs a coroutine for a call, which is cancelled if the client leaves.
Run = Callable[[Coroutine[Any, Any, Message], grpc.ServicerContext], Message]


class Methods:
    """The methods of the service.

    Args:
        models: the models that requests may ask.
        room: limits the requests in progress; None where the models' backend does.
    """

    def __init__(self, models: Models, room: Room | None) -> None:
        self._models = models
        self._room = room

    async def ServerLive(self, request: Message) -> Message:  # noqa: D102, N802
        return messages().ServerLiveResponse(live=True)

    async def ServerReady(self, request: Message) -> Message:  # noqa: D102, N802
        return messages().ServerReadyResponse(ready=await self._models.are_ready())

    async def ModelReady(self, request: Message) -> Message:  # noqa: D102, N802
        name = inference.versioned(request.name, request.version)
        try:
            is_ready = await self._models.is_ready(name)
        except RequestError as error:
            if error.code != Code.NOT_FOUND:
                raise
            is_ready = False
        return messages().ModelReadyResponse(ready=is_ready)

    async def ServerMetadata(self, request: Message) -> Message:  # noqa: D102, N802
        return messages().ServerMetadataResponse(**inference.server_metadata())

    async def ModelMetadata(self, request: Message) -> Message:  # noqa: D102, N802
        return converting.metadata_message(
            await inference.model_metadata(self._models, request.name, request.version)
        )

    async def ModelInfer(self, request: Message) -> Message:  # noqa: D102, N802
        size, room = request.ByteSize(), self._room
        with contextlib.nullcontext() if room is None else room.place(size):
            return await self._infer(request)

    async def _infer(self, request: Message) -> Message:
        model = await self._models.find(
            inference.versioned(request.model_name, request.model_version)
        )
        parameters = _parameters(request.parameters, "parameters", _PARAMETERS)
        for index, output in enumerate(request.outputs):
            _parameters(output.parameters, f"outputs.{index}.parameters", ("content_type",))
        inputs = await asyncio.to_thread(_inputs, request)
        outputs = await inference.infer(
            model, inputs, [output.name for output in request.outputs], parameters
        )
        response = messages().ModelInferResponse(
            model_name=request.model_name, model_version=request.model_version, id=request.id
        )
        # As the request has them; elements of some types are always binary.
        typed = not request.raw_input_contents and all(
            map(converting.has_typed_form, outputs.values())
        )
        for name, array in outputs.items():
            converting.add_tensor(
                response.outputs, name, array, response.raw_output_contents, typed=typed
            )
        return response


def handler(models: Models, run: Run, room: Room | None = None) -> grpc.GenericRpcHandler:
    """Returns the service's methods for a gRPC server.

    Args:
        models: the models that requests may ask.
        run: `in_thread`, or `in_loop(loop)`.
        room: see `Methods`.
    """
    methods = Methods(models, room)
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            name: grpc.unary_unary_rpc_method_handler(
                _answering(getattr(methods, name), run),
                request_deserializer=getattr(messages(), f"{name}Request").FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name in METHODS
        },
    )


def in_thread(coroutine: Coroutine[Any, Any, Message], context: grpc.ServicerContext) -> Message:
    """Runs a coroutine in the call's own thread."""

    async def watched() -> Message:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(coroutine)

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the call with it
                loop.call_soon_threadsafe(task.cancel)

        if not context.add_callback(cancel):
            task.cancel()
        return await task

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        raise _left() from None


def in_loop(loop: asyncio.AbstractEventLoop) -> Run:
    """Returns a function that runs a coroutine in an event loop and waits for it."""

    def run(coroutine: Coroutine[Any, Any, Message], context: grpc.ServicerContext) -> Message:
        running = asyncio.run_coroutine_threadsafe(coroutine, loop)
        if not context.add_callback(running.cancel):
            running.cancel()
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise _left() from None

    return run


def _answering(
    method: Callable[[Message], Coroutine[Any, Any, Message]], run: Run
) -> Callable[[Message, grpc.ServicerContext], Message]:
    def answer(request: Message, context: grpc.ServicerContext) -> Message:
        return answered(context, lambda: run(method(request), context))

    return answer


def _left() -> RequestError:
    return RequestError(Code.CANCELLED, "the client has left")


def _inputs(request: Message) -> list[inference.Input]:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise refusal(
            f"raw_input_contents has {len(raw)} tensors, but there are {len(request.inputs)} "
            "inputs",
            field="raw_input_contents",
        )
    inputs = []
    for index, tensor in enumerate(request.inputs):
        place = f"inputs.{index}"
        _parameters(tensor.parameters, f"{place}.parameters", ("content_type",))
        try:
            array: np.ndarray = converting.read_tensor(tensor, raw, index)
        except ValueError as error:
            raise refusal(f"{place} ({tensor.name[:200]!r}): {error}", field=place) from None
        inputs.append(inference.Input(tensor.name, array, place))
    return inputs


def _parameters(parameters: Any, place: str, supported: tuple[str, ...]) -> dict[str, Any]:
    values = converting.read_parameters(parameters)
    for name in values:
        if name not in supported:
            raise refusal(
                f"{place}.{name[:200]} is not supported; there are {', '.join(supported)}",
                field=f"{place}.{name}",
            )
    return values
