"""Keeps TensorFlow's start-up notices from stderr. Import it before Keras and TensorFlow.

TensorFlow's C++ code reports at each start that oneDNN is on and that there is no GPU.
`TF_CPP_MIN_LOG_LEVEL`, which this sets to 2, does not silence what it says while it is loaded, so
that is read and passed on without the notices. One line may follow later, when TensorFlow looks for
a GPU and finds none.

Only the recipes and the command line import this; `import keras_transformers` does not. It does
nothing with `TF_CPP_MIN_LOG_LEVEL=0`, and where TensorFlow is loaded already.
"""

import contextlib
import functools
import importlib.abc
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

_NOTICE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|[IW]\d{4} \d\d:\d\d:\d"
    rb"|E\d{4} .*Unable to register cu[A-Z]+ (factory|plugin)"
)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow at its first import, and has it loaded without its notices."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Returns what the other finders find."""
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load: Callable[[Any], None] = spec.loader.exec_module
            spec.loader.exec_module = functools.partial(_load, load)  # type: ignore[method-assign]
        return spec


def _load(load: Callable[[Any], None], module: Any) -> None:
    with _without_notices():
        load(module)


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Keeps what is written to stderr, C++ code's too, then writes all but the notices."""
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            kept.seek(0)
            for line in kept:
                if not _NOTICE.match(line):
                    os.write(2, line)


if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2") != "0" and "tensorflow" not in sys.modules:
    sys.meta_path.insert(0, _Finder())
