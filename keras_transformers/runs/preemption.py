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
"""Exit status of a training that is to be started again, and loses nothing that it had saved.

It was told to stop, and saved its state where it was training; or it cannot go on, for another of
its workers is gone: which of them failed by itself, and why, the status of that one tells. It is
EX_TEMPFAIL of sysexits.h, "the user is invited to retry". 143, what a shell reports of a process
that SIGTERM killed, would not tell one that has saved from one that has not. Slurm requeues it by
`RequeueExit=75` in slurm.conf, or `scontrol requeue` in the batch script; Kubernetes by an `Ignore`
rule on exit code 75 in a Job's `podFailurePolicy`.
"""


class Preempted(SystemExit):
    """Ends the program with `PREEMPTED_STATUS`; the state is saved."""

    def __init__(self) -> None:
        super().__init__(PREEMPTED_STATUS)


class TerminationNotice:
    """Remembers that SIGTERM came, so that training can stop where its state is whole.

    A second SIGTERM ends the process at once.

    Attributes:
        came: whether it did.
    """

    def __init__(self) -> None:
        self.came = False
        self._previous: Any = None
        self._is_listening = False

    def listen(self) -> None:
        """From now on SIGTERM is a notice."""
        if not _in_main_thread():
            logger.warning("SIGTERM saves no state: training runs in another than the main thread")
        elif not self._is_listening:
            self._previous = signal.signal(signal.SIGTERM, self._receive)
            self._is_listening = True

    def stop(self) -> None:
        """From now on SIGTERM does what it did before; one that came, and was not heard, does it.

        It may have come behind the last epoch, when training had ended by itself.
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

        SIGTERM is ignored from now on: this process may have been told by another worker, and its
        own signal come when Python has put away its handlers, and kill it.

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
    """From now on SIGTERM ends the program at once, with `PREEMPTED_STATUS`.

    For all that comes before and after the training itself, where nothing is left to save. What is
    on disk is whole at any moment, and no pool of processes is waited for. A SIGTERM that somebody
    handles already is left to them.
    """
    if not _in_main_thread():
        return
    notice = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(notice, TerminationNotice):  # of a training that failed, where a grid goes on
        notice.stop()
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave_at_once)


def leave_with_the_others() -> None:
    """From now on an error that tells of another worker's end is not this program's failure.

    If nothing catches it, it is printed, and the status is `PREEMPTED_STATUS`.
    """
    previous = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        previous(kind, error, traceback)
        if is_lost_worker(error):
            logger.warning(
                "another worker is gone, and this one cannot train without it: start all of them "
                "again, and they go on from the last checkpoint"
            )
            _exit()

    sys.excepthook = hook


def is_lost_worker(error: BaseException) -> bool:
    """Whether an error of TensorFlow says that another worker is gone."""
    return type(error).__name__ == "UnavailableError" or "Collective ops is aborted" in str(error)


@contextlib.contextmanager
def others_may_be_gone() -> Iterator[None]:
    """Passes over an error that tells of another worker's end: nothing is wanted of it any more."""
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
    """Without what Python does in the end: TensorFlow may wait there for workers that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(PREEMPTED_STATUS)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
