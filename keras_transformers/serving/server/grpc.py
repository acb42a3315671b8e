"""Implements TF Serving's gRPC services PredictionService and ModelService, and health."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
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
from keras_transformers.serving.server.engine import Call, Engine
from keras_transformers.serving.server.grpc_server import answered, bare_server
from keras_transformers.serving.server.keys import ApiKeys
from keras_transformers.serving.server.statuses import status_response

SERVICES = (
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


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


def set_health(servicer: health.HealthServicer, *, ready: bool) -> None:
    """Sets the answers of the health service, for the server and for each service."""
    status = health_pb2.HealthCheckResponse.ServingStatus
    for name in SERVICES:
        servicer.set(name, status.SERVING if ready else status.NOT_SERVING)


def _model_spec(message: Message) -> ModelSpec:
    version = message.version.value if message.HasField("version") else None
    return ModelSpec(message.name, version, message.version_label or None)
