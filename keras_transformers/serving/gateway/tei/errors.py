"""Says refusals in the shape of Text Embeddings Inference, with its statuses."""

from typing import Literal

from pydantic import BaseModel, Field

from keras_transformers.serving.gateway.refusals import RefusalError
from keras_transformers.serving.protocol.errors import Code


class TeiError(BaseModel):
    """The answer to a request that is refused or fails."""

    error: str = Field(description="What is wrong, with the value and the remedy.")
    error_type: Literal["Backend", "Overloaded", "Unhealthy", "Validation"] = Field(
        description="Whether the model failed, there are too many requests, no server answers, or "
        "the request is wrong."
    )


def error_shape(error: RefusalError) -> dict[str, str]:
    """Returns {error, error_type}."""
    return {"error": error.message, "error_type": _type(error)}


def status(error: RefusalError) -> int:
    """Returns 422 for a malformed request and 424 for a model that fails or cannot answer it."""
    if error.status >= 500 and error.code != Code.UNAVAILABLE:
        return 424
    return 422 if error.status == 400 else error.status


def _type(error: RefusalError) -> str:
    if error.status == 413:
        return "Validation"
    if error.code == Code.RESOURCE_EXHAUSTED:
        return "Overloaded"
    if error.code == Code.UNAVAILABLE:
        return "Unhealthy"
    return "Backend" if status(error) == 424 else "Validation"
