"""Implements TF Serving's gRPC services PredictionService and ModelService, and health."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import ServicerContext
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.protocol import messages
from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.serving.server.engine import Call, Engine, Limits
from keras_transformers.serving.server.grpc_guard import GrpcGuard, abort
from keras_transformers.serving.server.keys import ApiKeys
from keras_transformers.serving.server.logs import Seldom
from keras_transformers.serving.server.statuses import status_response
from keras_transformers.serving.server.tls import Tls

SERVICES = (
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)
_SPARE_THREADS = 8  # for health, status and rejected requests
_GRACE_S = 1.0  # how long many calls may wait for their messages

_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # clients can cause these records


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


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers Predict, Classify, Regress, MultiInference and GetModelMetadata with an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def Predict(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        return self._answer("Predict", request, context, messages.predict)

    def Classify(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        return self._answer("Classify", request, context, messages.classify)

    def Regress(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        return self._answer("Regress", request, context, messages.regress)

    def MultiInference(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        def answer() -> Message:
            if not request.tasks:
                raise invalid("Inference request must have at least one task.")
            specs = [task.model_spec for task in request.tasks]
            if any(not spec.name for spec in specs):
                raise invalid("Found ModelSpec with an empty model name.")
            if len({spec.name for spec in specs}) > 1:
                raise invalid(
                    "All ModelSpecs in a MultiInferenceRequest must access the same model name."
                )
            with (
                self._call("MultiInference", context) as call,
                self._engine.slot(request.ByteSize()),
                self._engine.lease(call, _model_spec(specs[0])) as lease,
            ):
                response = messages.multi_inference(lease.model, request, lease.run)
                for result in response.results:
                    result.model_spec.version.value = lease.version
                return response

        return answered(context, answer)

    def GetModelMetadata(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        def answer() -> Message:
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            spec = _model_spec(request.model_spec)
            model = self._engine.models[spec.name]
            with model.lease(spec.version, spec.label) as (version, saved_model):
                response = messages.metadata(saved_model, request.metadata_field)
                response.model_spec.name = spec.name
                response.model_spec.version.value = version.number
                return response

        return answered(context, answer)

    def _answer(
        self,
        entrypoint: str,
        request: Message,
        context: ServicerContext,
        method: Callable[..., Message],
    ) -> Message:
        def answer() -> Message:
            with (
                self._call(entrypoint, context) as call,
                self._engine.slot(request.ByteSize()),
                self._engine.lease(call, _model_spec(request.model_spec)) as lease,
            ):
                response = method(lease.model, request, lease.run)
                response.model_spec.name = request.model_spec.name
                response.model_spec.version.value = lease.version
                return response

        return answered(context, answer)

    @contextlib.contextmanager
    def _call(self, entrypoint: str, context: ServicerContext) -> Iterator[Call]:
        """Counts a request, and abandons it if its client leaves."""
        with self._engine.call("GRPC", entrypoint, context.time_remaining()) as call:
            if not context.add_callback(call.abandon):
                call.abandon()
            yield call


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Reports the states of versions. Requests cannot change what is served."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def GetModelStatus(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        def answer() -> Message:
            return status_response(self._engine.statuses(_model_spec(request.model_spec)))

        return answered(context, answer)

    def HandleReloadConfigRequest(self, request: Message, context: ServicerContext) -> Message:  # noqa: D102, N802
        def answer() -> Message:
            raise RequestError(
                Code.UNIMPLEMENTED,
                "a request cannot change what is served: edit its file of models, which is reread",
            )

        return answered(context, answer)


def make_executor(limits: Limits) -> ThreadPoolExecutor:
    """Returns the threads of a server; shut them down after it."""
    return ThreadPoolExecutor(_threads(limits), thread_name_prefix="serving-grpc")


def make_server(
    engine: Engine, executor: ThreadPoolExecutor, *, keys: ApiKeys | None = None
) -> tuple[grpc.Server, health.HealthServicer]:
    """Returns a gRPC server that has no port yet, and its health service.

    Args:
        engine: answers the requests.
        executor: the threads from `make_executor`.
        keys: the keys that calls must show; None for no keys.

    Returns:
        The grpc.Server, and the HealthServicer for `set_health`.
    """
    server = bare_server(engine.limits, executor, keys=keys)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(engine), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(engine), server)
    health_servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    set_health(health_servicer, ready=False)
    return server, health_servicer


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


def set_health(servicer: health.HealthServicer, *, ready: bool) -> None:
    """Sets the answers of the health service, for the server and for each service."""
    status = health_pb2.HealthCheckResponse.ServingStatus
    for name in SERVICES:
        servicer.set(name, status.SERVING if ready else status.NOT_SERVING)


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


def _model_spec(message: Message) -> ModelSpec:
    version = message.version.value if message.HasField("version") else None
    return ModelSpec(message.name, version, message.version_label or None)
