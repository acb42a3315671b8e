"""Writes files and folders completely or not at all.

Writers write to a temporary file in the same folder, flush it to disk and rename it. So no reader
sees half a file, and a process killed at any moment leaves none.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_transformers.files.errors import writing
from keras_transformers.files.folders import entries

__all__ = [
    "check_new",
    "check_writable",
    "new_folder",
    "replaced",
    "sync",
    "sync_tree",
    "write_json",
    "write_lines",
]


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str], *, scratch_folder: Path | None = None) -> Iterator[Path]:
    """Yields the path of a file to write, which replaces `path` when the block succeeds.

    Until then, and if the block raises, `path` does not change.

    Args:
        path: the file.
        scratch_folder: a folder on the same disk, where a killed process leaves the unfinished
            file; by default the file's own.

    Raises:
        FileNotFoundError: the folder of the file does not exist.

    Example:
        with replaced("metrics.json") as scratch:
            scratch.write_text("{}")
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise _no_folder(target)
    # It keeps the suffix, because some writers choose the format by it.
    scratch = (scratch_folder or target.parent) / f".{uuid.uuid4().hex}-{target.name}"
    try:
        with writing(scratch, target):
            yield scratch
            sync(scratch)
            os.replace(scratch, target)
        sync(target.parent)
    finally:
        scratch.unlink(missing_ok=True)


def check_new(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a file or folder to write, after checking that it can be written.

    Raises:
        FileExistsError: the path exists.
        FileNotFoundError: its parent folder does not.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or choose another name")
    if not path.parent.is_dir():
        raise _no_folder(path)
    return path


def _no_folder(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path.parent}: no such folder for {path.name}: create it first")


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Checks that a folder, which need not exist yet, can be created and written; leaves nothing.

    Raises:
        OSError: it cannot be; the message names the folder and the reason.
    """
    nearest = Path(folder).absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    probe = nearest / f".{uuid.uuid4().hex}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        where = "" if nearest == Path(folder).absolute() else f"{nearest}: "
        raise type(error)(
            f"{folder}: cannot be written ({where}{error.strerror}): allow it, or choose another "
            "place"
        ) from error


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    r"""Replaces a file by these lines in UTF-8; a line must not contain `\n`."""
    with replaced(path) as scratch:
        scratch.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = 2) -> None:
    """Replaces a file by JSON, with `str(...)` of values that JSON cannot represent."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    with replaced(path) as scratch:
        scratch.write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary folder, renamed to `path` if the block succeeds and removed otherwise.

    Raises:
        FileExistsError: `path` exists.
    """
    target = Path(path).absolute()
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists: choose another folder, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.parent / f".{uuid.uuid4().hex}-{target.name}"
    try:
        with writing(scratch, target):
            scratch.mkdir()  # not tempfile.mkdtemp: other users cannot read its folders
            yield scratch
            sync_tree(scratch)
            os.rename(scratch, target)
        sync(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sync_tree(folder: Path) -> None:
    """Flushes a folder and every file in it to disk."""
    for path, kind in entries(folder):
        if kind in ("file", "folder"):
            sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Flushes a file, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # a full disk: the system's error names no file
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        os.close(descriptor)
