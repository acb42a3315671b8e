"""Stops a run cleanly when a scheduler is about to take its machine away."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

logger = logging.getLogger(__name__)

PREEMPTED_STATUS = 75
"""Exit status that asks for a restart; no saved state is lost.

Either the process was asked to stop, and saved its state if it was training; or another worker is
gone, whose own status says why. 75 is EX_TEMPFAIL of sysexits.h, "the user is invited to retry".
143, which a shell reports after SIGTERM, would not say whether the process saved its state. To
start the job again, Slurm needs `RequeueExit=75` in slurm.conf or `scontrol requeue` in the batch
script; Kubernetes needs an `Ignore` rule for exit code 75 in the Job's `podFailurePolicy`.
"""


class Preempted(SystemExit):
    """Ends the program with `PREEMPTED_STATUS` after the state has been saved."""

    def __init__(self) -> None:
        super().__init__(PREEMPTED_STATUS)


class TerminationNotice:
    """Records that SIGTERM arrived, so that training can stop between two batches.

    A second SIGTERM ends the process at once.

    Attributes:
        came: whether SIGTERM arrived.
    """

    def __init__(self) -> None:
        self.came = False
        self._previous: Any = None
        self._is_listening = False

    def listen(self) -> None:
        """Treats SIGTERM as a notice from now on."""
        if not _in_main_thread():
            logger.warning("SIGTERM will save no state: training does not run in the main thread")
        elif not self._is_listening:
            self._previous = signal.signal(signal.SIGTERM, self._receive)
            self._is_listening = True

    def stop(self) -> None:
        """Restores SIGTERM's earlier handler, and applies it to a SIGTERM that is still pending.

        Such a signal may have arrived after the last epoch, when training ended by itself.
        """
        if not self._is_listening:
            return
        signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
        self._is_listening = False
        if self.came:
            self.came = False
            signal.raise_signal(signal.SIGTERM)

    def obey(self) -> NoReturn:
        """Ends the program.

        Ignores SIGTERM from now on: if another worker passed on the notice, this process's own
        signal may still arrive, and would kill it once Python has removed its handlers.

        Raises:
            Preempted: always.
        """
        if self._is_listening:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Preempted

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            self.stop()
        else:
            self.came = True


def leave_on_termination() -> None:
    """Makes SIGTERM end the program at once, with `PREEMPTED_STATUS`.

    Use it before and after training, when there is nothing to save: files on disk are complete at
    any moment. It does not wait for process pools, and keeps any other SIGTERM handler.
    """
    if not _in_main_thread():
        return
    notice = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(notice, TerminationNotice):  # from a run of a grid that failed
        notice.stop()
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave_at_once)


def leave_with_the_others() -> None:
    """Makes the program exit with `PREEMPTED_STATUS` if it ends because another worker is gone.

    This applies to uncaught errors, which are still printed.
    """
    previous = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        previous(kind, error, traceback)
        if is_lost_worker(error):
            logger.warning(
                "another worker is gone, and this one cannot train without it: start all of them "
                "again to continue from the last checkpoint"
            )
            _exit()

    sys.excepthook = hook


def is_lost_worker(error: BaseException) -> bool:
    """Returns whether a TensorFlow error says that another worker is gone."""
    return type(error).__name__ == "UnavailableError" or "Collective ops is aborted" in str(error)


@contextlib.contextmanager
def others_may_be_gone() -> Iterator[None]:
    """Ignores errors about another worker being gone, for when that worker is no longer needed."""
    try:
        yield
    except Exception as error:
        if not is_lost_worker(error):
            raise


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    try:
        logger.warning("SIGTERM: there is nothing to save")
    finally:  # the signal may have come in the middle of another line
        _exit()


def _exit() -> NoReturn:
    """Skips Python's shutdown, where TensorFlow may wait for workers that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(PREEMPTED_STATUS)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
