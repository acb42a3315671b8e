"""Names each request, so that logs, errors and traces of several processes can be put together.

A client may send an id as `X-Request-Id`, or in gRPC's metadata; otherwise the first server makes
one. Servers send it back, put it into their log, and pass it on.
"""

import logging
import re
import uuid
from contextvars import ContextVar

HEADER = "x-request-id"  # of HTTP, and the key in gRPC's metadata
_USABLE = re.compile(r"[\x21-\x7e]{1,128}")

# The id of the request that this code answers; empty outside of requests.
current: ContextVar[str] = ContextVar("request_id", default="")


def request_id(sent: str | None) -> str:
    r"""Returns the id that a client has sent if it can be printed and is short, else a new one.

    >>> request_id("order-17"), len(request_id("a line\nbreak")), len(request_id(None))
    ('order-17', 32, 32)
    """
    return sent if sent and _USABLE.fullmatch(sent) else uuid.uuid4().hex


class RequestFormatter(logging.Formatter):
    """Formats records of the log; those of a request end with its id."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text."""
        text, number = super().format(record), current.get()
        return f"{text} [request {number}]" if number else text
