"""Says refusals in OpenAI's shape."""

from typing import Any

from keras_transformers.serving.gateway.refusals import RefusalError
from keras_transformers.serving.protocol.errors import Code

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {Code.NOT_FOUND: "not_found", Code.DEADLINE_EXCEEDED: "timeout"}


def error_shape(error: RefusalError) -> dict[str, Any]:
    """Returns {"error": {message, type, param, code}}, which OpenAI's clients raise."""
    kind = _TYPES.get(
        error.status, "invalid_request_error" if error.status < 500 else "server_error"
    )
    code = _CODES.get(error.code, error.code.name.lower())
    if error.code == Code.NOT_FOUND and error.field == "model":
        code = "model_not_found"
    return {"error": {"message": error.message, "type": kind, "param": error.field, "code": code}}
