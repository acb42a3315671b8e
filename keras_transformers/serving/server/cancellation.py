"""Lets one thread end what another one runs."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class Cancellation:
    """Ends a run from another thread, before it starts or while it is in progress.

    Attributes:
        is_cancelled: whether `cancel` has been called.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Ends the run; does nothing if it has ended."""
        with self._lock:
            if not self.is_cancelled:
                self.is_cancelled = True
                if self._end is not None:
                    self._end()

    @contextlib.contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Calls `end` once if the block is cancelled, and never after the block."""
        with self._lock:
            self._end = end
            if self.is_cancelled:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None
