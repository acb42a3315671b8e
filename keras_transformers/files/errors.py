"""Formats errors about files for users."""

import contextlib
import os
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["naming", "one_line"]

_LONGEST_MESSAGE = 2000


class _Short(reprlib.Repr):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxarray = 10
        self.maxstring = self.maxlong = self.maxother = length

    def repr_int(self, value: int, level: int) -> str:
        """Python refuses to print more than a few thousand digits."""
        bits = value.bit_length()
        return super().repr_int(value, level) if bits < 8192 else f"an integer of {bits} bits"


def short_repr(value: Any, length: int = 100) -> str:
    """Returns a value's `repr` for an error message, cut to a length.

    Unlike f"{value!r:.100}", it takes neither time nor stack for a value that is large or nested
    thousands deep, as a hostile file or a request may contain.

    >>> short_repr("a word"), short_repr([[[[[1]]]]], 30)
    ("'a word'", '[[[[...]]]]')
    """
    return _Short(length).repr(value)[:length]


def one_line(error: BaseException) -> str:
    """Returns an error's message in one line that can be printed, shortened if it is very long.

    Python's own errors about files get the same form as ours: the file, then the problem.

    >>> one_line(FileExistsError(17, "File exists", "a"))
    'a: File exists'
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        text = f"{place}{error.strerror}"
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[: _LONGEST_MESSAGE // 2]} ... {text[-_LONGEST_MESSAGE // 2 :]}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@contextlib.contextmanager
def naming(names: Mapping[Path, object]) -> Iterator[None]:
    """Makes errors in the block name the user's files, not temporary copies of them.

    Args:
        names: the path of a copy -> its original, a file before its folder.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        message = str(error)
        for copy, name in names.items():
            message = message.replace(os.fspath(copy), str(name))
        if message == str(error):
            raise
        kinds = (FileExistsError, FileNotFoundError, OSError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(message) from error
