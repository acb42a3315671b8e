"""Keeps the last few states of a training on disk, each file complete or absent.

A file is a plain `.npz`. Its name has the step and a checksum, such as
`step-000001200-3fa9c1d2e4b5a697.npz`, so later damage shows.
"""

import contextlib
import hashlib
import io
import logging
import os
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from keras_transformers import files

logger = logging.getLogger(__name__)

_NAME = re.compile(r"step-(\d{9,})-([0-9a-f]{16})\.npz")
_PART = ".part-"  # prefix of a file that is being written
_CHUNK = 1 << 20  # bytes


class CheckpointError(OSError):
    """A checkpoint could not be written; earlier ones are unchanged."""


class Snapshots:
    """Keeps the last few states of a training in their own folder.

    One process writes; any number may read.

    Args:
        folder: the folder, created when needed.
        keep: how many to keep; with 2 or more, one is left if the newest is damaged.

    Raises:
        ValueError: `keep` is below 1.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: expected 1 checkpoint or more")
        self.folder = Path(folder)
        self.keep = keep

    def paths(self) -> list[Path]:
        """Returns all files, damaged or not, the newest first."""
        if not self.folder.is_dir():
            return []
        paths = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(paths, key=step_of, reverse=True)

    def newest(self) -> Path | None:
        """Returns the newest undamaged file; None if there are no files.

        Damaged files are skipped with a warning.

        Raises:
            ValueError: all files are damaged.
        """
        paths = self.paths()
        for path in paths:
            if is_whole(path):
                return path
            logger.warning("%s is damaged and skipped: using the one before it", path)
        if paths:
            raise ValueError(
                f"{self.folder}: all {len(paths)} checkpoints are damaged; remove the folder to "
                "start training again"
            )
        return None

    def write(self, step: int, arrays: Iterable[tuple[str, np.ndarray]]) -> Path:
        """Writes a file, completely or not at all, and removes all but the last few.

        When the call returns, the file is on the disk and survives a loss of power.

        Args:
            step: a number that grows from call to call.
            arrays: names and values, taken one at a time to save memory.

        Raises:
            CheckpointError: the disk is full or the folder is read-only, for example.
        """
        scratch = self.folder / f"{_PART}{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            digest = _write_npz(scratch, arrays)
            path = self.folder / f"step-{step:09d}-{digest}.npz"
            scratch.replace(path)
            files.sync(self.folder)  # or a loss of power could undo the rename
        except OSError as error:
            raise CheckpointError(self._complaint(error)) from error
        finally:
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)
        self._forget(path)
        return path

    def check_writable(self) -> None:
        """Checks at the start that checkpoints can be written.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        probe = self.folder / f"{_PART}{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(bytes(1))
            probe.unlink()
        except OSError as error:
            raise CheckpointError(self._complaint(error)) from error

    def _complaint(self, error: OSError) -> str:
        paths = self.paths() if os.access(self.folder, os.R_OK | os.X_OK) else []
        kept = f"the last checkpoint is {paths[0]}" if paths else "no checkpoint was written before"
        return (
            f"{self.folder}: no checkpoint could be written ({error.strerror or error}); {kept}. "
            "Free some space or allow writing there, then resume the training"
        )

    def _forget(self, newest: Path) -> None:
        """Removes old files, unfinished files of a killed process, and abandoned later states.

        A file with the same or a later step than the newest one was damaged, and training resumed
        from an earlier one.
        """
        kept = [path for path in self.paths() if path == newest or step_of(path) < step_of(newest)]
        kept = kept[: self.keep]
        parts = self.folder.glob(f"{_PART}*")
        for path in [*(path for path in self.paths() if path not in kept), *parts]:
            path.unlink(missing_ok=True)


def check_not_gone(folder: Path, *, figures: Path, weights: Sequence[Path]) -> None:
    """Checks that a training without checkpoints has no results that a new start would replace.

    A training that was killed before its first checkpoint may have written its first weights; but
    then it also has the folder.

    Args:
        folder: the folder of its checkpoints.
        figures: the file that it writes when it is done.
        weights: the files that it writes before each checkpoint.

    Raises:
        FileNotFoundError: there are results, but the checkpoints are gone.
    """
    if Snapshots(folder).paths() or (folder.is_dir() and not figures.is_file()):
        return
    if kept := [path.name for path in (figures, *weights) if path.is_file()]:
        raise FileNotFoundError(
            f"{folder}: the checkpoints are gone, and starting again would replace "
            f"{', '.join(kept)}: put them back, or choose another --name"
        )


def step_of(path: Path) -> int:
    """Returns the step in a file's name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path}: not the name of a checkpoint")
    return int(match[1])


def is_whole(path: Path) -> bool:
    """Returns whether a file still has the bytes that were written."""
    match = _NAME.fullmatch(path.name)
    digest = _new_digest()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return False
    return match is not None and digest.hexdigest() == match[2]


@contextlib.contextmanager
def reading(path: Path) -> Iterator["np.lib.npyio.NpzFile"]:
    """Opens an undamaged file, whose arrays are read on access."""
    with np.load(path, allow_pickle=False) as arrays:
        yield arrays


def _write_npz(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """Writes the file to the disk and returns its checksum.

    `np.savez` needs all arrays at once and seeks back in the file, which would break the checksum.
    """
    with path.open("xb") as file:
        stream = _Hashing(file)
        # ZipInfo's default time is constant, so equal states give equal files.
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays:
                member = zipfile.ZipInfo(f"{name}.npy")
                with archive.open(member, "w", force_zip64=True) as target:
                    np.lib.format.write_array(target, _plain(array), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return stream.digest.hexdigest()


def _plain(array: np.ndarray) -> np.ndarray:
    """Returns the array, as bytes if NumPy's format cannot name its type, such as bfloat16."""
    array = np.asarray(array)
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.kind == "V" else array


class _Hashing(io.RawIOBase):
    """Writes for `zipfile` without seeking, and adds each byte to a checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.digest = _new_digest()

    def write(self, data: Any) -> int:
        """Writes to the file and updates the checksum."""
        self.digest.update(data)
        return self._file.write(data)


def _new_digest() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=8)
