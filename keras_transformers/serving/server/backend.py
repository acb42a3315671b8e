"""Lets the gateway's routes ask the local server's own engine."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Executor

import numpy as np

from keras_transformers.serving.client.grpc_messages import read_status, signature_infos
from keras_transformers.serving.client.transport import Call as Asked
from keras_transformers.serving.client.transport import SignatureInfo, VersionStatus
from keras_transformers.serving.protocol import requests
from keras_transformers.serving.protocol.errors import invalid
from keras_transformers.serving.protocol.messages import signature_map
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec
from keras_transformers.serving.protocol.signatures import SignatureInfo as Served
from keras_transformers.serving.server.engine import Call, Engine, Lease
from keras_transformers.serving.server.statuses import status_response


class EngineBackend:
    """A backend in this process; `gateway.backend.Backend` describes the methods.

    Args:
        engine: runs the models.
        executor: its threads wait for answers.
    """

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self._engine = engine
        self._executor = executor
        # A request with many texts becomes several runs, which wait for each other's places.
        self._places = asyncio.Semaphore(engine.limits.max_requests)

    async def names(self) -> list[str]:  # noqa: D102
        return self._engine.models.names

    async def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> Mapping[str, SignatureInfo]:
        with self._engine.models[model.name].lease(model.version, model.label) as (_, saved_model):
            return signature_infos(signature_map(saved_model).signature_def)

    async def predict(self, call: Asked, inputs: Arrays) -> dict[str, np.ndarray]:  # noqa: D102
        async with self._places:
            return await self._predict(call, inputs)

    async def _predict(self, call: Asked, inputs: Arrays) -> dict[str, np.ndarray]:
        with self._counted(call, inputs) as counted:
            context = contextvars.copy_context()
            running = asyncio.get_running_loop().run_in_executor(
                self._executor, context.run, self._answer, counted, call, inputs
            )
            try:
                return await running
            finally:
                counted.abandon()  # if the task was cancelled, because the client has left

    def _answer(self, counted: Call, call: Asked, inputs: Arrays) -> dict[str, np.ndarray]:
        with self._engine.lease(counted, call.model) as lease:
            return dict(requests.predict(_signature(lease, call), inputs, lease.run))

    async def stream(self, call: Asked, inputs: Arrays) -> AsyncIterator[dict[str, np.ndarray]]:  # noqa: D102
        with (
            self._counted(call, inputs) as counted,
            self._engine.lease(counted, call.model) as lease,
        ):
            signature = _signature(lease, call)
            requests.check_inputs(signature, inputs)
            parts = lease.stream(signature, inputs)
            if parts is not None:
                async with contextlib.aclosing(parts):
                    async for outputs in parts:
                        yield outputs
                return
        yield await self.predict(call, inputs)

    @contextlib.contextmanager
    def _counted(self, call: Asked, inputs: Arrays) -> Iterator[Call]:
        """Counts a request, and holds its place."""
        size = sum(
            sum(map(len, a.flat)) if a.dtype == object else a.nbytes for a in inputs.values()
        )
        with (
            self._engine.call("gateway", "Predict", call.timeout_s) as counted,
            self._engine.slot(size),
        ):
            yield counted

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        return read_status(status_response(self._engine.statuses(model)))

    async def close(self) -> None:  # noqa: D102
        pass  # the engine is the server's


def _signature(lease: Lease, call: Asked) -> Served:
    signature = lease.model.signatures.get(call.signature_name)
    if signature is None:
        raise invalid(f"the model has no signature {call.signature_name[:200]!r}")
    return signature
