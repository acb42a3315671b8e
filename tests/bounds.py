"""Runs code in a process with little time and memory, so that a fault fails and hangs nothing."""

import os
import pickle
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def bounded(call: Callable[[], Any], *, seconds: int = 10, mebibytes: int = 512) -> Any:
    """Returns what a call returns in a fork that may use so much more processor time and memory.

    Raises:
        AssertionError: the call took more, raised, or ended the process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            used = pages * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (mebibytes << 20),) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(20 * seconds)  # it may wait instead of computing
            answer = ("returned", call())
        except BaseException as error:
            answer = ("raised", f"{type(error).__name__}: {error}"[:1000])
        with open(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        written = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"ended by {signal.Signals(-status).name if status < 0 else status}"
    how, value = pickle.loads(written)
    assert how == "returned", value
    return value
