"""Makes gRPC servers, with limits on calls whose messages do not arrive."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import ServicerContext

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.server.grpc_guard import GrpcGuard, abort
from keras_transformers.serving.server.keys import ApiKeys
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.logs import Seldom
from keras_transformers.serving.server.tls import Tls

_SPARE_THREADS = 8  # for health, status and rejected requests
_GRACE_S = 1.0  # how long many calls may wait for their messages

_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


def make_executor(limits: Limits) -> ThreadPoolExecutor:
    """Returns the threads of a server; shut them down after it."""
    return ThreadPoolExecutor(_threads(limits), thread_name_prefix="serving-grpc")


def bare_server(
    limits: Limits, executor: ThreadPoolExecutor, *, keys: ApiKeys | None = None
) -> grpc.Server:
    """Returns a gRPC server without services and without a port.

    Args:
        limits: see `Limits`.
        executor: its threads.
        keys: the keys that calls must show; None for no keys.
    """
    # A message also takes memory while it arrives.
    most_arriving = min(limits.max_requests, limits.max_held_bytes // limits.max_body_bytes)
    return grpc.server(
        executor,
        interceptors=[GrpcGuard(keys), _Arrivals(most_arriving)],
        # Beyond this, gRPC itself answers RESOURCE_EXHAUSTED.
        maximum_concurrent_rpcs=_threads(limits),
        options=[
            ("grpc.max_receive_message_length", limits.max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # so that a port in use raises an error
        ],
    )


def _threads(limits: Limits) -> int:
    """Returns enough for the requests in progress, as many unfinished ones, and the others."""
    return 2 * limits.max_requests + _SPARE_THREADS


def bind(server: grpc.Server, host: str, port: int, tls: Tls | None) -> int:
    """Opens the port of a server and returns it.

    Raises:
        OSError: the port is in use, or the address is not this machine's.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is not None:
            return server.add_secure_port(address, tls.credentials())
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address} for gRPC: {error}") from None


def answered(context: ServicerContext, answer: Callable[[], Message]) -> Message:
    """Returns the result of `answer`; turns its errors into the call's status."""
    try:
        return answer()
    except RequestError as error:
        failure = error
    except Exception:
        _logger.exception("a gRPC call failed")
        failure = RequestError(Code.INTERNAL, "internal error; see the server's log")
    return abort(context, failure)


class _Arrivals(grpc.ServerInterceptor):
    """Receives and parses the messages of calls.

    grpc waits for a message in one of its threads forever, so a few calls without one would take
    all threads. Here, when too many calls have waited for a second, those that have waited longest
    are ended. A message that cannot be parsed is the client's fault; grpc would answer INTERNAL and
    log a traceback. There are no streams, because each would stay for as long as its client wants.

    Args:
        most: how many calls may wait for their messages.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Any, float] = {}  # context -> since when, oldest first
        self._timed = False  # whether a timer is running
        self._lock = threading.Lock()

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Returns a handler for a stream, because its context can end the waiting."""
        handler = continuation(handler_call_details)
        if handler is None:
            return None

        def refuse(stream: Any, context: ServicerContext) -> Any:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server has no streams")

        if handler.unary_unary is None:  # health's Watch
            return grpc.stream_unary_rpc_method_handler(refuse)

        def receive_and_answer(stream: Any, context: ServicerContext) -> Any:
            data = self._receive(stream, context)
            try:
                request = None if data is None else handler.request_deserializer(data)
            except DecodeError:
                request = None
            if request is None:
                _logger.warning("rejected a gRPC message that cannot be parsed")
                message = f"{handler_call_details.method}: the message cannot be parsed"
                return context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
            return handler.unary_unary(request, context)

        return grpc.stream_unary_rpc_method_handler(
            receive_and_answer, response_serializer=handler.response_serializer
        )

    def _receive(self, stream: Any, context: ServicerContext) -> bytes | None:
        """Returns a call's message; None if the client does not send one."""
        with self._lock:
            self._waiting[context] = time.monotonic()
            self._watch()
        try:
            return next(stream, None)
        finally:
            with self._lock:
                self._waiting.pop(context, None)

    def _watch(self) -> None:
        """Starts a timer, unless one runs, for when the oldest of many calls is overdue."""
        if self._timed or len(self._waiting) <= self._most:
            return
        self._timed = True
        oldest = next(iter(self._waiting.values()))
        timer = threading.Timer(oldest + _GRACE_S - time.monotonic(), self._end_oldest)
        timer.daemon = True
        timer.start()

    def _end_oldest(self) -> None:
        started = time.monotonic() - _GRACE_S
        with self._lock:
            crowd = list(self._waiting.items())[: max(0, len(self._waiting) - self._most)]
            ended = [context for context, since in crowd if since <= started]
            for context in ended:
                del self._waiting[context]
            self._timed = False
            self._watch()
        for context in ended:
            context.cancel()
