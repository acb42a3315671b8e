"""Says refusals in OpenAI's shape."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from keras_transformers.serving.gateway.apis import described_errors, router
from keras_transformers.serving.gateway.refusals import RefusalError
from keras_transformers.serving.protocol.errors import Code

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {Code.NOT_FOUND: "not_found", Code.DEADLINE_EXCEEDED: "timeout"}


class ErrorDetail(BaseModel):
    """What is wrong with a request, or went wrong."""

    message: str = Field(description="What is wrong, with the value and the remedy.")
    type: str = Field(description='Such as "invalid_request_error".')
    param: str | None = Field(description='The field at fault, such as "messages.0.role".')
    code: str | None = Field(description='Such as "model_not_found".')


class Error(BaseModel):
    """The answer to a request that is refused or fails."""

    error: ErrorDetail = Field(description="What is wrong.")


def openai_router() -> APIRouter:
    """Returns a router for routes of OpenAI's API."""
    errors = described_errors(Error)
    return router(error_shape, prefix="/v1", tags=["OpenAI"], responses=errors)


def error_shape(error: RefusalError) -> dict[str, Any]:
    """Returns {"error": {message, type, param, code}}, which OpenAI's clients raise."""
    kind = _TYPES.get(
        error.status, "invalid_request_error" if error.status < 500 else "server_error"
    )
    code = _CODES.get(error.code, error.code.name.lower())
    if error.code == Code.NOT_FOUND and error.field == "model":
        code = "model_not_found"
    return {"error": {"message": error.message, "type": kind, "param": error.field, "code": code}}
