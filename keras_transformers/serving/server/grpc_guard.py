"""Stands before gRPC services: request ids, API keys and traces."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc

from keras_transformers.serving.protocol import request_ids, tracing
from keras_transformers.serving.protocol.errors import HTTP_STATUS, RequestError
from keras_transformers.serving.server.guard import retry_headers
from keras_transformers.serving.server.keys import ApiKey, ApiKeys

# For probes: the standard service, and KServe's methods.
_WITHOUT_KEYS = ("/grpc.health.v1.Health/", "/inference.GRPCInferenceService/Server")
# An error may quote its request. It is sent in a header, with three characters per non-ASCII byte,
# and gRPC rejects answers with more than 8 KiB of headers.
_LONGEST_MESSAGE = 2000  # bytes
# The four kinds of calls: whether requests, and answers, are streams.
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class GrpcGuard(grpc.ServerInterceptor):
    """Names each call, checks its key and traces it.

    Args:
        keys: the keys that are admitted; None for all calls.
    """

    def __init__(self, keys: ApiKeys | None) -> None:
        self._keys = keys

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Returns the method's handler, or one that refuses the call before its message is read."""
        method = handler_call_details.method
        metadata = {
            key: value
            for key, value in handler_call_details.invocation_metadata
            if isinstance(value, str)
        }
        number = request_ids.request_id(metadata.get(request_ids.HEADER))
        key: ApiKey | None = None
        try:
            if self._keys is not None and not method.startswith(_WITHOUT_KEYS):
                key = self._keys.check(metadata)
        except RequestError as error:
            refused = error
            return grpc.unary_unary_rpc_method_handler(
                lambda _, context: abort(context, refused, number)
            )
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        guarded = _Guarded(getattr(handler, kind), self._keys, key, number, method, metadata)
        answer = guarded.stream if handler.response_streaming else guarded.call
        return handler._replace(**{kind: answer})


class _Guarded:
    """One method of a service, with the key and the id of a call."""

    def __init__(
        self,
        method: Callable[..., Any],
        keys: ApiKeys | None,
        key: ApiKey | None,
        number: str,
        name: str,
        metadata: Mapping[str, str],
    ) -> None:
        self._method = method
        self._keys = keys
        self._key = key
        self._number = number
        self._name = name
        self._metadata = metadata

    def call(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._admitted(context):
            return self._method(request, context)

    def stream(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        with self._admitted(context):
            yield from self._method(request, context)

    @contextlib.contextmanager
    def _admitted(self, context: grpc.ServicerContext) -> Iterator[None]:
        token = request_ids.current.set(self._number)
        try:
            with contextlib.ExitStack() as stack:
                if self._keys is not None and self._key is not None:
                    try:
                        stack.enter_context(self._keys.admit(self._key))
                    except RequestError as error:
                        abort(context, error, self._number)
                context.set_trailing_metadata(((request_ids.HEADER, self._number),))
                name = self._name.removeprefix("/")
                details = {"rpc__system": "grpc", "request_id": self._number}
                stack.enter_context(tracing.span(name, "server", parent=self._metadata, **details))
                yield
        finally:
            request_ids.current.reset(token)


def abort(context: grpc.ServicerContext, error: RequestError, number: str = "") -> Any:
    """Ends a call with an error, the request's id, and when to try again."""
    metadata = {request_ids.HEADER: number or request_ids.current.get()}
    headers = retry_headers(HTTP_STATUS[error.code], error)
    metadata |= {name.lower(): value for name, value in headers.items()}
    context.set_trailing_metadata(tuple(item for item in metadata.items() if item[1]))
    message = error.message.encode("utf-8", "replace")[:_LONGEST_MESSAGE]
    code = getattr(grpc.StatusCode, error.code.name)
    return context.abort(code, message.decode("utf-8", "ignore"))
