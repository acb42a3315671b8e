"""Defines the error that server and client raise, with a code that both protocols share."""

import enum

from keras_transformers.dependencies.graph_errors import sentence

__all__ = ["Code", "RequestError"]


class Code(enum.IntEnum):
    """The canonical codes that gRPC, TensorFlow and TF Serving share, with their numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# ToHTTPStatusCode of TF Serving's model_servers/http_server.cc.
HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}
# HTTP status -> code: the first code with that status, plus the statuses that proxies send.
_CODE_OF_STATUS = {
    **{status: code for code, status in reversed(HTTP_STATUS.items())},
    408: Code.DEADLINE_EXCEEDED,
    413: Code.INVALID_ARGUMENT,
    500: Code.INTERNAL,
    502: Code.UNAVAILABLE,
}


class RequestError(OSError):
    """Raised when a request is rejected or fails.

    Attributes:
        code: the kind of failure.
        message: the message for the caller.
        retry_after_s: after how many seconds the request may be sent again; None if nobody knows.
        request_id: the id under which the server's log has the request; empty if it has none.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        retry_after_s: float | None = None,
        request_id: str = "",
    ) -> None:
        number = f" [request {request_id}]" if request_id else ""
        super().__init__(f"{code.name}: {message}{number}")
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.request_id = request_id


class UnreachableError(RequestError):
    """Raised when there is no connection to a server; the message has its address."""


def code_of_http_status(status: int) -> Code:
    """Returns the code for an HTTP status.

    >>> code_of_http_status(429).name, code_of_http_status(400).name, code_of_http_status(418).name
    ('RESOURCE_EXHAUSTED', 'INVALID_ARGUMENT', 'INVALID_ARGUMENT')
    """
    fallback = Code.INVALID_ARGUMENT if 400 <= status < 500 else Code.UNKNOWN
    return _CODE_OF_STATUS.get(status, fallback)


def as_request_error(error: Exception) -> RequestError:
    """Returns the error itself if it is a RequestError, else an INTERNAL one that names it."""
    if isinstance(error, RequestError):
        return error
    return RequestError(Code.INTERNAL, f"{type(error).__name__}: {sentence(str(error))}")


def invalid(message: str) -> RequestError:
    """Returns an INVALID_ARGUMENT error: the request cannot succeed, now or later."""
    return RequestError(Code.INVALID_ARGUMENT, message)
