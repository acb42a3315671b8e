"""New processes for the checks of exports, forked from one that has imported TensorFlow.

The check of an export runs in a process of its own, which takes most of its time to import
TensorFlow. This one has imported it, and nothing of Keras or of this package; each check runs in
a fork of it, as in a process that was just started. Run as a program this file is that process: it
reads one JSON line per command of `python -P -c`, and answers with one JSON line.

The tests of the check itself start processes as users do: see `new_processes`.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_PYTHON = sys.executable


@contextlib.contextmanager
def checks_in_forks() -> Iterator[None]:
    """The checks of exports run in forks; what else `check` runs, it runs as ever."""
    from keras_transformers.saved_model.checks import check

    process = _Process()
    check.subprocess = SimpleNamespace(run=process.run, TimeoutExpired=subprocess.TimeoutExpired)
    yield
    check.subprocess = subprocess
    process.close()


class _Process:
    @functools.cached_property
    def _process(self) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        return subprocess.Popen([_PYTHON, "-P", __file__], text=True, env=environment, **pipes)

    def run(
        self, command: list[str], *, timeout: float, env: dict[str, str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Does what `subprocess.run` does, for `python -P -c CODE ARGUMENTS`, with text."""
        if command[:3] != [_PYTHON, "-P", "-c"]:
            return subprocess.run(command, timeout=timeout, env=env, **options)
        process = self._process
        print(json.dumps([command[3:], dict(env), timeout]), file=process.stdin, flush=True)
        status, output, errors = json.loads(process.stdout.readline())
        if status == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, status, output, errors)

    def close(self) -> None:
        if "_process" in self.__dict__:
            self._process.communicate()


def _run(command: list[str], environment: dict[str, str], timeout: float) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os._exit(_main(command, environment, timeout))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (output, errors):
            file.seek(0)
        return status, output.read(), errors.read()


def _main(command: list[str], environment: dict[str, str], timeout: float) -> int:
    signal.setitimer(signal.ITIMER_REAL, timeout)
    os.environ.clear()
    os.environ.update(environment)
    code, *arguments = command
    sys.argv = ["-c", *arguments]
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    try:
        exec(code, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    sys.modules["keras"] = None  # as the check does before it imports TensorFlow
    import tensorflow  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_run(*json.loads(line))), flush=True)
