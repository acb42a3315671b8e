"""Reads and writes files by path, and by the URLs of object stores through Apache Beam.

A place is a path, or a URL such as `gs://bucket/texts`. URLs need the extra `beam`, and what Beam
itself needs for their scheme, such as `apache-beam[gcp]`.
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

from keras_transformers.extras import optional
from keras_transformers.files import entries, read_json, replaced

Place = str


def is_url(place: Place) -> bool:
    """Tells whether a place is a URL, and so needs Beam."""
    return "://" in place


def find(pattern: str) -> list[Place]:
    """Returns the files that a pattern matches, sorted.

    Args:
        pattern: a path or URL in which `*`, `?` and `[...]` match within a name, and, in a path,
            `**` any folders.
    """
    if is_url(pattern):
        return sorted(_match(pattern))
    return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))


def names(folder: Place) -> list[str]:
    """Returns the paths of all files in a folder and its subfolders, relative to it, sorted.

    A folder that does not exist has no files.
    """
    if is_url(folder):
        return sorted(path[len(folder) + 1 :] for path in _match(f"{folder}/**"))
    if not os.path.isdir(folder):
        return []
    found = (path for path, kind in entries(Path(folder)) if kind in ("file", "link"))
    return [path.relative_to(folder).as_posix() for path in found if path.is_file()]


@contextlib.contextmanager
def fetched(place: Place) -> Iterator[Path]:
    """Yields a local file to read: the file itself, or a copy of a URL's for the block's time.

    A ValueError raised in the block names the place, not the copy.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not is_url(place):
        yield _existing(place)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, place.rpartition("/")[2])
        _copy(place, copy)
        with _naming(place, copy):
            yield copy


@contextlib.contextmanager
def fetched_folder(place: Place) -> Iterator[Path]:
    """Yields a local folder to read: the folder itself, or a copy of a URL's.

    A ValueError raised in the block names the place, not the copy.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not is_url(place):
        yield _existing(place)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, place.rpartition("/")[2])
        found = names(place)
        if not found:
            raise FileNotFoundError(f"{place}: no such folder; check the URL")
        for name in found:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(f"{place}/{name}", copy / name)
        with _naming(place, copy):
            yield copy


@contextlib.contextmanager
def stored(place: Place, *, scratch_folder: Place | None = None) -> Iterator[Path]:
    """Yields the path of a file to write, which becomes `place` when the block succeeds.

    Until then, and if the block raises, `place` does not change.

    Args:
        place: the file; missing folders are made.
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
    elif found := names(folder):
        _file_systems().delete([f"{folder}/{name}" for name in found])


def remove_file(place: Place) -> None:
    """Removes a file."""
    if is_url(place):
        _file_systems().delete([place])
    else:
        os.unlink(place)


def _file_systems() -> Any:
    return optional("apache_beam.io.filesystems", extra="beam").FileSystems


def _existing(place: Place) -> Path:
    path = Path(place)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder; check the path")
    return path


def _match(pattern: str) -> list[str]:
    return [found.path for found in _file_systems().match([pattern])[0].metadata_list]


# Beam would otherwise unpack files whose names end in .gz.
def _plain() -> dict[str, Any]:
    types = optional("apache_beam.io.filesystem", extra="beam").CompressionTypes
    return {"compression_type": types.UNCOMPRESSED}


def _copy(place: Place, path: Path) -> None:
    systems = _file_systems()
    if not systems.exists(place):
        raise FileNotFoundError(f"{place}: no such file; check the URL")
    with systems.open(place, **_plain()) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


def _upload(path: Path, place: Place, scratch_folder: Place) -> None:
    """Writes under another name and renames: not every file system shows a file only when whole."""
    systems = _file_systems()
    unfinished = f"{scratch_folder}/{uuid.uuid4().hex}-{path.name}"
    for folder in {scratch_folder, place.rpartition("/")[0]}:
        if not systems.exists(folder):
            with contextlib.suppress(OSError):  # another worker has just made it
                systems.mkdirs(folder)
    with path.open("rb") as source, systems.create(unfinished, **_plain()) as target:
        shutil.copyfileobj(source, target)
    if systems.exists(place):  # a second attempt; not every file system overwrites by renaming
        systems.delete([place])
    systems.rename([unfinished], [place])


@contextlib.contextmanager
def _naming(place: Place, copy: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace(str(copy), place)) from error
