"""Keeps TensorFlow's start-up notices from stderr. Import it before Keras and TensorFlow.

On every start, TensorFlow's C++ code reports that oneDNN is on and that there is no GPU.
`TF_CPP_MIN_LOG_LEVEL`, which this module sets to 2, does not silence messages printed during the
import, so the module captures those and passes on all but the notices. One line may follow later,
when TensorFlow looks for a GPU and finds none.

Only the recipes and the command line import this; `import keras_transformers` does not. It does
nothing if `TF_CPP_MIN_LOG_LEVEL=0` is set or TensorFlow is already loaded.
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
    """Intercepts the first import of TensorFlow and loads it without its notices."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Returns the spec that the other finders find, with a loader that drops the notices."""
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
    """Captures stderr, including C++ output, then writes everything except the notices."""
    try:
        stderr = os.dup(2)
    except OSError:  # stderr is closed
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
