"""Sets up the log, and keeps records that clients can cause from filling it."""

import logging
import sys
import threading
import time

from keras_transformers.serving.protocol.request_ids import RequestFormatter


class Seldom(logging.Filter):
    """Passes one record of each kind per interval, with the number of records left out.

    Records are of one kind if they come from the same line of the program.

    Args:
        seconds: the time between two records of a kind.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._kinds: dict[tuple[str, int], tuple[float, int]] = {}  # kind -> next time, left out
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether to log the record."""
        kind, now = (record.pathname, record.lineno), time.monotonic()
        with self._lock:
            due, left_out = self._kinds.get(kind, (now, 0))
            if now < due:
                self._kinds[kind] = due, left_out + 1
                return False
            self._kinds[kind] = now + self._seconds, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like it)", ()
        return True


def log_to_stderr() -> None:
    """Writes the log of a command to stderr, with the ids of requests."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RequestFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # A line for each request to a server, and start-up logs, are only noise here.
    for name, level in (("httpx", logging.WARNING), ("tensorflow", logging.ERROR)):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
