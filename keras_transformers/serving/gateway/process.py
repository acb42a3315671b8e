"""Runs the gateway in a process of its own."""

import asyncio
import logging
import os
import threading
from typing import Self

import uvicorn

from keras_transformers.serving.gateway.apis import Room
from keras_transformers.serving.gateway.application import application, refusal
from keras_transformers.serving.gateway.backend import Backend, Models
from keras_transformers.serving.gateway.kserve import grpc as kserve
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.server import grpc_server
from keras_transformers.serving.server.guard import Guard, Health
from keras_transformers.serving.server.hosts import HostCheck
from keras_transformers.serving.server.http import http_config, listen
from keras_transformers.serving.server.keys import ApiKeys
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.tls import Tls

__all__ = ["Gateway"]

_PATIENCE_S = 5.0  # how long stopping may take after the timeout of the last request
_logger = logging.getLogger(__name__)


class Gateway:
    """Answers clients of OpenAI's, Text Embeddings Inference's and KServe's APIs until stopped.

    Args:
        backend: what runs the models.
        host: the address to listen on. Only this machine can reach the default.
        port: REST's port; 0 picks a free one.
        grpc_port: the port of KServe's gRPC API; 0 picks a free one, None turns it off.
        allowed_hosts: see `Server`.
        limits: see `Limits`; the one on new tokens is the servers'.
        tls: see `Tls`; None turns encryption off.
        api_keys: a file of the keys that requests must show; see `ApiKeys`. None for no keys.
        log_requests: whether to log a line for each request.

    Raises:
        ValueError: see `ApiKeys`.
        OSError: a port is in use, the address is not this machine's, or a certificate is invalid.

    Attributes:
        port: REST's port.
        grpc_port: gRPC's port; None if it is off.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        grpc_port: int | None = None,
        allowed_hosts: tuple[str, ...] = (),
        limits: Limits | None = None,
        tls: Tls | None = None,
        api_keys: str | os.PathLike[str] | None = None,
        log_requests: bool = False,
    ) -> None:
        limits = limits or Limits()
        self._backend = backend
        self._timeout_s = limits.timeout_s
        app = application(
            backend,
            timeout_s=limits.timeout_s,
            max_body_bytes=limits.max_body_bytes,
            max_rows=limits.max_rows,
            max_requests=limits.max_requests,
            max_held_bytes=limits.max_held_bytes,
        )
        self._models: Models = app.state.models
        self._room: Room = app.state.room  # both protocols count
        keys = None if api_keys is None else ApiKeys(api_keys)
        guarded = Guard(app, refusal, keys=keys, log_requests=log_requests)
        checked = HostCheck(guarded, bound=host, allowed=allowed_hosts)
        self._http = uvicorn.Server(http_config(Health(checked, self._problem), limits, tls))
        self._thread = threading.Thread(target=self._serve, name="gateway", daemon=True)
        self._listening = listen(host, port)
        self.port = self._listening.getsockname()[1]
        self._grpc_executor = grpc_server.make_executor(limits)
        self._grpc = grpc_server.bare_server(limits, self._grpc_executor, keys=keys)
        self.grpc_port = None
        if grpc_port is not None:
            try:
                self.grpc_port = grpc_server.bind(self._grpc, host, grpc_port, tls)
            except OSError:
                self._listening.close()
                raise

    def start(self) -> None:
        """Answers requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Refuses new requests, answers those in progress, and shuts down."""
        self._grpc.stop(self._timeout_s)  # from now on, it refuses calls
        self._http.should_exit = True
        for patience_s in (self._timeout_s + _PATIENCE_S, _PATIENCE_S):
            self._thread.join(patience_s)
            self._http.force_exit = True
        if self._thread.is_alive():  # its event loop still watches the socket
            _logger.warning("the gateway did not stop; its thread ends with the process")
        else:
            self._listening.close()
        self._grpc_executor.shutdown(wait=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def _problem(self) -> str:
        """Returns which model no server answers for; empty if none."""
        if self._http.should_exit:
            return "the gateway is stopping"
        try:
            names = await self._models.names()
            for name in names:
                if not await self._models.is_ready(name):
                    return f"no server has a version of {name} that answers"
        except RequestError as error:
            return error.message
        return "" if names else "the servers name no model"

    def _serve(self) -> None:
        asyncio.run(self._serve_and_close())

    async def _serve_and_close(self) -> None:
        if self.grpc_port is not None:
            run = kserve.in_loop(asyncio.get_running_loop())
            self._grpc.add_generic_rpc_handlers((kserve.handler(self._models, run, self._room),))
            self._grpc.start()
        await self._http.serve(sockets=[self._listening])
        if self.grpc_port is not None:  # its calls need this event loop
            await asyncio.to_thread(self._grpc.stop(self._timeout_s).wait)
        await self._backend.close()  # its connections belong to this event loop
