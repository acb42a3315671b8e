"""Configures HTTP servers, with limits on how long clients may hold their connections."""

import asyncio
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from keras_transformers.serving.server.connections import BoundedConnection
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.tls import Tls, TlsConnection

# How long a connection may stay idle: longer than clients keep one (httpx: 5 s), otherwise the
# server might close it just as the client sends the next request.
_IDLE_S = 30


def http_config(app: ASGIApp, limits: Limits, tls: Tls | None) -> uvicorn.Config:
    """Returns how uvicorn serves an application."""
    context = None if tls is None else tls.context()

    def connection(**options: Any) -> asyncio.Protocol:
        bounded = BoundedConnection(max_unfinished_bytes=limits.max_held_bytes, **options)
        return bounded if context is None else TlsConnection(bounded, context)

    return uvicorn.Config(
        app,
        http=connection,  # type: ignore[arg-type]  # uvicorn only calls it
        timeout_keep_alive=_IDLE_S,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=4 * limits.max_requests + 16,  # see BoundedConnection
        timeout_graceful_shutdown=int(limits.timeout_s) + 1,
    )


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; OSError if the address is not free, or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends immediately only if it knows that the socket is TCP's. Otherwise a body waits
    # until the client has acknowledged the head of its answer: 40 ms on Linux.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()  # so that clients that come before the event loop wait, not fail
    except OSError as error:
        listening.close()
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return listening
