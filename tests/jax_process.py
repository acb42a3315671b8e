"""A process in which Keras runs on JAX and TensorFlow must never be imported.

Starting Python with JAX takes seconds, so the tests of a session share one process (the fixture
`on_jax`). Run as a program this file is that process: it reads one JSON line per piece of code,
runs it in a namespace of its own, and answers with one JSON line.
"""

import contextlib
import io
import json
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[1]


class JaxProcess:
    """Call it with code; it returns what the code prints."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                "PATH": "",
                "PYTHONPATH": str(ROOT),
                "KERAS_BACKEND": "jax",
                # Compiling takes most of the time of such small programs.
                "XLA_FLAGS": "--xla_backend_optimization_level=0",
            },
        )

    def __call__(self, code: str) -> str:
        """Runs code; fails with its traceback, or if TensorFlow was imported."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        assert "error" not in answer, answer["error"]
        assert answer["backend"] == "jax", f"Keras runs on {answer['backend']}"
        assert not answer["tensorflow"], "TensorFlow was imported"
        return answer["output"]

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def _run(code: str) -> dict[str, object]:
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(code, {"__name__": "__main__"})
    except Exception:
        return {"error": traceback.format_exc()}
    keras = sys.modules["keras"]
    return {
        "output": output.getvalue(),
        "backend": keras.backend.backend(),
        "tensorflow": "tensorflow" in sys.modules,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)
