"""Runs a server with TF Serving's REST and gRPC APIs, in one Python process.

It is for development and small use; TF Serving is the production server.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from keras_transformers.serving.gateway import application as gateway
from keras_transformers.serving.gateway.backend import Models as AskedModels
from keras_transformers.serving.gateway.kserve import grpc as kserve
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.server import grpc, grpc_server, rest
from keras_transformers.serving.server.backend import EngineBackend
from keras_transformers.serving.server.batching import BatchingOptions
from keras_transformers.serving.server.engine import Engine
from keras_transformers.serving.server.guard import Guard, Health
from keras_transformers.serving.server.hosts import HostCheck, split_target
from keras_transformers.serving.server.http import http_config, listen
from keras_transformers.serving.server.keys import ApiKeys
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.models import Models
from keras_transformers.serving.server.settings import ModelSettings
from keras_transformers.serving.server.tls import Tls

__all__ = ["Server"]

# How long stopping may take after the timeout of the last request.
_PATIENCE_S = 5.0
_logger = logging.getLogger(__name__)


class Server:
    """Serves models until it is stopped.

    Args:
        models: the models, or a function that returns them, called at every poll.
        host: the address to listen on. Only this machine can reach the default.
        rest_port: REST's port; 0 picks a free one, None turns REST off.
        grpc_port: gRPC's port; 0 picks a free one, None turns gRPC off.
        allowed_hosts: names, without ports, to accept in the Host header of REST requests in
            addition to `host` and this machine's own; "*" accepts all. By default, a server that
            only this machine can reach accepts no others (see `hosts`), and any other accepts all.
        limits: see `Limits`.
        batching: see `BatchingOptions`.
        tls: see `Tls`; None turns encryption off.
        poll_interval_s: seconds between checks for new versions.
        pages: an ASGI application for REST paths outside the API, instead of the gateway's routes.
        api_keys: a file of the keys that requests must show; see `ApiKeys`. None for no keys.
        log_requests: whether to log a line for each REST request.

    Raises:
        OSError: a port is in use, the address is not this machine's, or a certificate is invalid.
        ValueError: REST and gRPC are both off, a port is out of range, or `poll_interval_s` is not
            positive.

    Attributes:
        engine: answers the requests of both protocols.
        rest_port: REST's port; None if REST is off.
        grpc_port: gRPC's port; None if gRPC is off.
    """

    def __init__(
        self,
        models: list[ModelSettings] | Callable[[], list[ModelSettings]],
        *,
        host: str = "127.0.0.1",
        rest_port: int | None = 8501,
        grpc_port: int | None = 8500,
        allowed_hosts: Collection[str] = (),
        limits: Limits | None = None,
        batching: BatchingOptions | None = None,
        tls: Tls | None = None,
        poll_interval_s: float = 1.0,
        pages: ASGIApp | None = None,
        api_keys: str | os.PathLike[str] | None = None,
        log_requests: bool = False,
    ) -> None:
        if rest_port is None and grpc_port is None:
            raise ValueError("neither a REST nor a gRPC port: pass at least one")
        for port in (rest_port, grpc_port):
            if port is not None and not 0 <= port < 2**16:  # gRPC would wrap it around silently
                raise ValueError(f"port {port}: expected 0 to 65535")
        if not poll_interval_s > 0:
            raise ValueError(f"poll_interval_s is {poll_interval_s}: expected a positive number")
        read = models if callable(models) else lambda: models
        limits, batching = limits or Limits(), batching or BatchingOptions()
        self.engine = Engine(
            Models(read, poll_interval_s=poll_interval_s, max_runs=batching.max_runs_of_a_model),
            limits=limits,
            batching=batching,
        )
        keys = None if api_keys is None else ApiKeys(api_keys)
        self._executor = ThreadPoolExecutor(limits.max_requests, "serving-rest")
        self._grpc_executor = grpc_server.make_executor(limits)
        self._grpc, self._health = grpc.make_server(self.engine, self._grpc_executor, keys=keys)
        backend = EngineBackend(self.engine, self._executor)
        asked = AskedModels(backend, timeout_s=limits.timeout_s, max_rows=limits.max_rows)
        self._grpc.add_generic_rpc_handlers((kserve.handler(asked, kserve.in_thread),))
        others = pages or gateway.application(
            backend,
            timeout_s=limits.timeout_s,
            max_body_bytes=limits.max_body_bytes,
            max_rows=limits.max_rows,
            max_requests=limits.max_requests,
            max_held_bytes=limits.max_held_bytes,
            fallback=rest.application(self.engine, self._executor),
        )
        app = rest.application(self.engine, self._executor, others)
        guarded = Guard(app, _refusal, keys=keys, log_requests=log_requests)
        checked = HostCheck(guarded, bound=host, allowed=allowed_hosts)
        self._rest = uvicorn.Server(http_config(Health(checked, self._problem), limits, tls))
        self._rest_thread = threading.Thread(target=self._serve_rest, name="rest", daemon=True)
        self._health_thread = threading.Thread(target=self._tell_health, name="health", daemon=True)
        self._stopping = threading.Event()
        # Ports are opened last, so that an earlier failure leaves none open.
        self._listening = None if rest_port is None else listen(host, rest_port)
        self.rest_port = self._listening.getsockname()[1] if self._listening else None
        self.grpc_port = None
        if grpc_port is not None:
            try:
                self.grpc_port = grpc_server.bind(self._grpc, host, grpc_port, tls)
            except OSError:
                if self._listening is not None:
                    self._listening.close()
                raise

    def start(self) -> None:
        """Opens the ports and starts loading; requests for a loading model get UNAVAILABLE."""
        self.engine.start()
        if self._listening is not None:
            self._rest_thread.start()
        if self.grpc_port is not None:
            self._grpc.start()
        self._health_thread.start()

    def wait_until_loaded(self, timeout_s: float | None = None) -> bool:
        """Waits until each version found at the start has loaded or failed.

        Returns:
            Whether every model has a version that can answer.
        """
        return self.engine.models.wait_for_first_look(timeout_s) and self.engine.models.is_ready()

    def stop(self) -> None:
        """Rejects new requests, answers those in progress, and shuts down."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        grpc.set_health(self._health, ready=False)
        self._rest.should_exit = True
        ended = self._grpc.stop(self.engine.limits.timeout_s)
        if self._rest_thread.is_alive():
            self._end_rest()
        ended.wait()
        if self._health_thread.is_alive():
            self._health_thread.join()
        if self._listening is not None and not self._rest_thread.is_alive():
            self._listening.close()
        self._executor.shutdown()
        self._grpc_executor.shutdown()
        self.engine.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def _problem(self) -> str:
        """Returns why the server is not ready; empty if it is."""
        if self._stopping.is_set():
            return "the server is stopping"
        models = self.engine.models
        waiting = [name for name in models.names if not models[name].is_ready()]
        return f"no version answers of {', '.join(waiting)}" if waiting else ""

    def _serve_rest(self) -> None:
        assert self._listening is not None
        asyncio.run(self._rest.serve(sockets=[self._listening]))

    def _end_rest(self) -> None:
        """Waits for uvicorn to answer the requests in progress, up to their timeout."""
        for force in (False, True):
            self._rest.force_exit = force
            patience_s = _PATIENCE_S if force else self.engine.limits.timeout_s + _PATIENCE_S
            self._rest_thread.join(patience_s)
            if not self._rest_thread.is_alive():
                return
        _logger.warning("the REST server did not stop; its thread ends with the process")

    def _tell_health(self) -> None:
        """Keeps the health service up to date."""
        told = False
        while not self._stopping.wait(0.1):
            ready = self.engine.models.is_ready()
            if ready != told:
                grpc.set_health(self._health, ready=ready)
                told = ready


def _refusal(scope: Scope, error: RequestError) -> Response:
    """Returns a refusal in the shape of TF Serving's API, or of the one that the request asks."""
    is_ours = rest.is_of_this_api(split_target(scope)[1])
    return (rest if is_ours else gateway).refusal(scope, error)
