"""Formats errors about files for users."""

import contextlib
import errno
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from keras_transformers.dependencies.graph_errors import sentence

__all__ = ["naming", "one_line"]

_LONGEST_MESSAGE = 2000
# Errors that disappear once there is space or access.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


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

    Python's own errors about files get the same form as ours: the file, then the problem. Of a
    TensorFlow graph's error, only the sentence remains.

    >>> one_line(FileExistsError(17, "File exists", "a"))
    'a: File exists'
    """
    text = sentence(str(error))
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        text = f"{place}{error.strerror}"
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[: _LONGEST_MESSAGE // 2]} ... {text[-_LONGEST_MESSAGE // 2 :]}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def no_room(error: BaseException) -> str:
    """Returns why there was no space for a file, or "" for any other error.

    The reason is "No space left on device" or similar, whether from Python, HDF5, safetensors or
    TensorFlow.
    """
    reasons = [os.strerror(number) for number in _NO_ROOM]
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return os.strerror(error.errno)
    return next((reason for reason in reasons if reason in str(error)), "")


@contextlib.contextmanager
def writing(scratch: Path, target: Path) -> Iterator[None]:
    """Makes errors in the block name the file or folder to write, not its temporary copy.

    The errors of a full disk name no file, and have a type of their own in each library.

    Raises:
        OSError: there is no space for the target.
    """
    try:
        with naming({scratch: target}):
            yield
    except Exception as error:
        reason, text = no_room(error), str(error)
        if not reason or (str(target) in text and str(scratch) not in text):
            raise
        number = next(number for number in _NO_ROOM if os.strerror(number) == reason)
        raise OSError(number, reason, str(target)) from error


@contextlib.contextmanager
def naming(names: Mapping[Path, object]) -> Iterator[None]:
    """Makes errors in the block name the user's files, not temporary copies of them.

    Args:
        names: the path of a copy -> its original, a file before its folder.
    """

    def renamed(text: str) -> str:
        for copy, name in names.items():
            text = text.replace(os.fspath(copy), str(name))
        return text

    try:
        yield
    except OSError as error:
        if not error.strerror or error.filename is None:
            _raise_renamed(error, renamed)
        file = os.fsdecode(error.filename)
        if file == renamed(file):
            raise
        raise OSError(error.errno, error.strerror, renamed(file)) from error
    except ValueError as error:
        _raise_renamed(error, renamed)


def _raise_renamed(error: OSError | ValueError, renamed: Callable[[str], str]) -> NoReturn:
    if renamed(str(error)) == str(error):
        raise error
    kinds = (FileExistsError, FileNotFoundError, OSError, ValueError)
    kind = next(kind for kind in kinds if isinstance(error, kind))
    raise kind(renamed(str(error))) from error
