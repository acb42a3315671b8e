"""Defines the limits of a server on its requests."""

import math
from dataclasses import dataclass

__all__ = ["Limits"]

_HELD_BODIES = 16  # how many bodies of maximum size are held at once


@dataclass(frozen=True)
class Limits:
    """Limits on requests, beyond which they are rejected so that the server stays up.

    Attributes:
        max_body_bytes: the size of a REST body or a gRPC message.
        max_rows: the number of rows in a request.
        max_requests: the number of requests that have arrived and are in progress or waiting; the
            next one gets 429 or RESOURCE_EXHAUSTED.
        timeout_s: the seconds that a request may take, including reading its body; a gRPC client
            may set an earlier deadline.
        max_new_tokens: the most new tokens that a request may ask a language model for, in its
            input `max_length` or `max_new_tokens`.

    Raises:
        ValueError: a limit is not positive and finite.
    """

    max_body_bytes: int = 16 * 1024 * 1024
    max_rows: int = 1024
    max_requests: int = 64
    timeout_s: float = 30.0
    max_new_tokens: int = 4096

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}: expected a positive number")

    @property
    def max_held_bytes(self) -> int:
        """The limit for the bodies in progress together, and again for the unfinished ones."""
        return _HELD_BODIES * self.max_body_bytes
