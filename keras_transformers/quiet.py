"""Keeps TensorFlow's start-up notices from stderr. Import it before Keras and TensorFlow.

TensorFlow's C++ code reports at each start that oneDNN is on and that there is no GPU, and asks for
other compiler flags. `TF_CPP_MIN_LOG_LEVEL` does not silence what it says while it is loaded. So
from this import on, a small process stands before stderr, drops those notices and passes on all
else, even if this process crashes. Python's own messages do not go through it.

Only the recipes and the command line import this; `import keras_transformers` does not. It does
nothing with `TF_CPP_MIN_LOG_LEVEL=0`, in a notebook, and where TensorFlow is loaded already.
"""

import atexit
import contextlib
import os
import subprocess
import sys

# As regular expressions of lines; {levels} are I and perhaps W, for information and warnings.
_NOTICES = (
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR",
    r"^[{levels}]\d{{4}} \d\d:\d\d:\d",
    # No GPU, which is no error: other failures of cuInit pass.
    r"failed call to cuInit: .*(UNKNOWN ERROR \(303\)|CUDA_ERROR_NO_DEVICE)",
    r"Unable to register cu[A-Z]+ (factory|plugin)",
    r"oneDNN supports DT_INT64 only on platforms with AVX-512",
)
_FILTER = """
import os, re, sys
is_notice = re.compile(os.fsencode(sys.argv[1])).search
for line in sys.stdin.buffer:
    if not is_notice(line):
        os.write(2, line)
"""


def _start() -> None:
    """Puts the filter before stderr."""
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    stream = sys.stderr
    # Somebody else may have replaced stderr, as notebooks and pytest do, or closed it.
    if level == "0" or "tensorflow" in sys.modules or stream is not sys.__stderr__ or not stream:
        return
    try:
        stderr = os.dup(stream.fileno())
    except (OSError, ValueError):
        return
    notices = "|".join(_NOTICES).format(levels="I" if level == "1" else "IW")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _FILTER, notices],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
    )
    assert process.stdin is not None
    # What Python writes stays in order, and knows whether it writes to a terminal.
    sys.stderr = open(  # noqa: SIM115  it stays open
        stderr, "w", buffering=1, encoding=stream.encoding, errors=stream.errors, closefd=False
    )
    os.dup2(process.stdin.fileno(), 2)
    process.stdin.close()

    def stop() -> None:
        os.dup2(stderr, 2)  # the filter then reads to its end
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)

    atexit.register(stop)


_start()
