"""Pauses Python's garbage collector while many objects are made that stay."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Makes no collections inside, unless they are off anyway.

    New objects start a full collection, which visits all of TensorFlow's: 0.3 s each time. Imports,
    models and graphs make many objects, and hardly any garbage.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
