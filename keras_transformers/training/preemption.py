"""What a scheduler says before it takes a machine away, and what it is answered."""

import logging
import signal
import threading
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)

PREEMPTED_STATUS = 75
"""Exit status of a training that was told to stop, saved its state, and wants to go on.

It is EX_TEMPFAIL of sysexits.h, "the user is invited to retry". 143, what a shell reports of a
process that SIGTERM killed, would not tell one that has saved from one that has not. Slurm requeues
it by `RequeueExit=75` in slurm.conf, or `scontrol requeue` in the batch script; Kubernetes by an
`Ignore` rule on exit code 75 in a Job's `podFailurePolicy`.
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
        if threading.current_thread() is not threading.main_thread():
            logger.warning("SIGTERM saves no state: training runs in another than the main thread")
        elif not self._is_listening:
            self._previous = signal.signal(signal.SIGTERM, self._receive)
            self._is_listening = True

    def stop(self) -> None:
        """From now on SIGTERM does what it did before."""
        if self._is_listening:
            signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
            self._is_listening = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            self.stop()
            signal.raise_signal(number)
        self.came = True
