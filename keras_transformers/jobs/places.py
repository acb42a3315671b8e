"""Reads and writes files by path, and by URL through fsspec.

A place is a path, or a URL such as `gs://bucket/texts`. URLs need the extra `urls`, and the package
that fsspec requires for their scheme, such as gcsfs.
"""

import contextlib
import glob
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_transformers.dependencies.extras import MissingExtraError, optional
from keras_transformers.files import entries, naming, read_json, replaced

Place = str


def is_url(place: Place) -> bool:
    """Returns whether a place is a URL, and so needs fsspec."""
    return "://" in place


def find(pattern: str) -> list[Place]:
    """Returns the files that a pattern matches, sorted.

    Args:
        pattern: a path or URL in which `*`, `?` and `[...]` match within a name, and `**` matches
            any folders in a path.
    """
    if is_url(pattern):
        system, path = _system(pattern)
        start = pattern.removesuffix(path)  # fsspec's paths have no scheme, and some have no host
        listing = system.glob(path, detail=True).items()
        return sorted(f"{start}{name}" for name, about in listing if about["type"] == "file")
    return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))


def matches(pattern: str) -> list[Place]:
    """Returns the files that a pattern matches; FileNotFoundError if it matches none."""
    if not (files := find(pattern)):
        raise FileNotFoundError(f"{pattern}: no file matches: check the pattern")
    return files


def exists(place: Place) -> bool:
    """Returns whether there is a file or a folder."""
    if not is_url(place):
        return os.path.lexists(place)
    system, path = _system(place)
    return bool(system.exists(path))


def names(folder: Place) -> list[str]:
    """Returns the paths of all files in a folder and its subfolders, relative to it, sorted.

    A folder that does not exist has no files.
    """
    if is_url(folder):
        system, root = _system(folder)
        return sorted(path[len(root) + 1 :] for path in system.find(root))
    if not os.path.isdir(folder):
        return []
    paths = (path for path, kind in entries(Path(folder)) if kind in ("file", "link"))
    return [path.relative_to(folder).as_posix() for path in paths if path.is_file()]


@contextlib.contextmanager
def fetched(place: Place) -> Iterator[Path]:
    """Yields a local file to read: the file itself, or a temporary copy of a URL's.

    A ValueError or OSError raised in the block names the place, not the copy.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not is_url(place):
        yield _existing(place)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, place.rpartition("/")[2])
        _copy(place, copy)
        with naming({copy: place}):
            yield copy


@contextlib.contextmanager
def fetched_folder(place: Place) -> Iterator[Path]:
    """Yields a local folder to read: the folder itself, or a temporary copy of a URL's.

    A ValueError or OSError raised in the block names the place, not the copy.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not is_url(place):
        yield _existing(place)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, place.rpartition("/")[2])
        paths = names(place)
        if not paths:
            raise FileNotFoundError(f"{place}: no such folder; check the URL")
        for name in paths:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(f"{place}/{name}", copy / name)
        with naming({copy: place}):
            yield copy


@contextlib.contextmanager
def stored(place: Place, *, scratch_folder: Place | None = None) -> Iterator[Path]:
    """Yields the path of a file to write, which becomes `place` when the block succeeds.

    Until then, and if the block raises, `place` does not change.

    Args:
        place: the file; missing folders are created.
        scratch_folder: where a killed process may leave an unfinished file; by default the folder
            of `place`.
    """
    if not is_url(place):
        scratch = Path(scratch_folder) if scratch_folder else Path(place).parent
        for parent in {scratch, Path(place).parent}:
            parent.mkdir(parents=True, exist_ok=True)
        with replaced(place, scratch_folder=scratch) as path:
            yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, place.rpartition("/")[2])
        yield path
        _upload(path, place, scratch_folder or place.rpartition("/")[0])


def read(place: Place) -> Any:
    """Reads a file that holds one JSON object; see `files.read_json` for the errors."""
    with fetched(place) as path:
        return read_json(path)


def write(place: Place, value: Any) -> None:
    """Replaces a file by JSON."""
    with stored(place) as path:
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def remove(folder: Place) -> None:
    """Removes a folder and all files in it, if it exists."""
    if not is_url(folder):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        system, path = _system(folder)
        with contextlib.suppress(FileNotFoundError):
            system.rm(path, recursive=True)


def remove_file(place: Place) -> None:
    """Removes a file."""
    if is_url(place):
        system, path = _system(place)
        system.rm_file(path)
    else:
        os.unlink(place)


def _system(place: Place) -> tuple[Any, str]:
    """Returns the file system of a URL, and the path there."""
    fsspec = optional("fsspec", extra="urls")
    try:
        # Other processes also write there, so a list of files must not be cached.
        system, path = fsspec.url_to_fs(place, use_listings_cache=False)
    except ImportError as error:
        raise MissingExtraError(f"{place}: {error}", name=error.name) from error
    except ValueError as error:
        raise ValueError(f"{place}: {error}; check the URL") from error
    return system, path.rstrip("/")


def _existing(place: Place) -> Path:
    path = Path(place)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder; check the path")
    return path


def _copy(place: Place, path: Path) -> None:
    system, remote = _system(place)
    try:
        system.get_file(remote, str(path))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{place}: no such file; check the URL") from error


def _upload(path: Path, place: Place, scratch_folder: Place) -> None:
    """Writes under another name and renames, since file systems may show incomplete files."""
    system, target = _system(place)
    _, scratch = _system(scratch_folder)
    unfinished = f"{scratch}/{uuid.uuid4().hex}-{path.name}"
    for folder in {scratch, target.rpartition("/")[0]}:
        system.makedirs(folder, exist_ok=True)
    system.put_file(str(path), unfinished)
    if system.exists(target):  # a second attempt; not every file system overwrites by renaming
        system.rm_file(target)
    system.mv(unfinished, target)
