"""Defines the error that a route raises, with the field of the request that is at fault."""

from keras_transformers.serving.protocol.errors import HTTP_STATUS, Code, RequestError


class RefusalError(RequestError):
    """Raised when a request is refused because of what it says.

    Attributes:
        field: the field at fault, such as "messages.0.role"; None if it is not one field.
        status: the HTTP status.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        field: str | None,
        status: int,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, message, retry_after_s=retry_after_s)
        self.field = field
        self.status = status


def refusal(
    message: str,
    *,
    field: str | None = None,
    code: Code = Code.INVALID_ARGUMENT,
    status: int | None = None,
) -> RefusalError:
    """Returns a refusal, with the code's HTTP status unless it is given."""
    return RefusalError(code, message, field, HTTP_STATUS[code] if status is None else status)
