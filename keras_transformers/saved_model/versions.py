"""Manages version folders in the layout of TF Serving's model_base_path: BASE/1, BASE/2, ...

A version is written to a hidden folder in BASE and then renamed, so that a server that watches BASE
sees all of it or nothing. TF Serving skips names that are not numbers.
"""

import contextlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from keras_transformers.files import sync, sync_tree
from keras_transformers.files.errors import writing

_STAGING_PREFIX = ".exporting-"
WITHDRAWN_PREFIX = ".withdrawn-"  # before the number of a version that is no longer served
_LARGEST = 2**63 - 2  # servers store a version in 64 bits, and one number must be left for the next
_STALE_AFTER_S = 24 * 3600  # no export takes a day: an older folder was left by a killed process

_logger = logging.getLogger(__name__)


def split_target(path: str | os.PathLike[str]) -> tuple[Path, int | None]:
    """Splits an export's target: BASE/<number> names a version, anything else is a BASE.

    Returns:
        BASE and the version; None for the next free one.

    Raises:
        FileExistsError: the version exists or was withdrawn, or BASE is a file or itself an export.
        ValueError: the version has leading zeros, which exports never have, or is too large for a
            server; or BASE has no number left for its next version.
    """
    target = Path(path).absolute()
    named = _is_number(target.name)
    base = target.parent if named else target
    plain = target.name.lstrip("0") or "0"
    if named and (len(plain) > len(str(_LARGEST)) or int(plain) > _LARGEST):
        raise ValueError(f"{target}: a version is at most {_LARGEST}: use a smaller number")
    if named and target.name != plain:
        raise ValueError(f"version {target.name!r} of {base}: write it as {plain}")
    if named and os.path.lexists(target):
        raise _taken(target)
    if os.path.lexists(base) and not base.is_dir():
        raise FileExistsError(
            f"{base} is a file, or a link without a folder behind it, not a folder: pass "
            "another path"
        )
    if (base / "saved_model.pb").exists():
        raise FileExistsError(
            f"{base} is itself an export; pass {base.parent} (the next version is picked) or "
            "another folder"
        )
    if not named:
        _next(base)  # fails now, not after the export is written
    elif int(plain) in (number for number, _ in withdrawn(base)):
        raise FileExistsError(
            f"version {plain} of {base} was withdrawn, and its number is never used again: pass "
            f"{base} for the next version, or another number"
        )
    return base, int(plain) if named else None


def versions(base: Path) -> list[int]:
    """Returns the numbers of `version_folders`, ascending; none if `base` does not exist."""
    return list(version_folders(base))


def version_folders(base: Path) -> dict[int, Path]:
    """Returns the versions that TF Serving finds in `base`: number -> folder, ascending.

    Like TF Serving, it accepts names with leading zeros.
    """
    folders: dict[int, Path] = {}
    for child in sorted(base.iterdir()) if base.is_dir() else ():
        # int() rejects names of thousands of digits.
        if _is_number(child.name) and len(child.name) < 20 and child.is_dir():
            folders.setdefault(int(child.name), child)
    return {number: folders[number] for number in sorted(folders) if number < 2**63}


def withdrawn(base: Path) -> list[tuple[int, str]]:
    """Returns the number and folder name of each version that a rollback withdrew, ascending."""
    names = [path.name for path in base.glob(f"{WITHDRAWN_PREFIX}*")]
    numbers = [(name.removeprefix(WITHDRAWN_PREFIX), name) for name in names]
    return sorted((int(number), name) for number, name in numbers if _is_number(number))


def resolve(path: str | os.PathLike[str]) -> Path:
    """Returns `path` if it is an export, else the newest version in it.

    Raises:
        FileNotFoundError: the path does not exist, or has no version with a saved_model.pb.
    """
    folder = Path(path)
    if (folder / "saved_model.pb").is_file():
        return folder
    for version in reversed(version_folders(folder).values()):
        if (version / "saved_model.pb").is_file():
            return version
    reason = "no version folder with a saved_model.pb in it" if folder.exists() else "no such path"
    raise FileNotFoundError(
        f"no export at {folder}: {reason}; pass a model's folder of versions, such as "
        "saved_models/sentiment, or one of its versions, saved_models/sentiment/1"
    )


@contextlib.contextmanager
def staging_folder(base: Path) -> Iterator[Path]:
    """Yields a new hidden folder in `base`, on the same file system as the versions.

    `publish` moves it into place; a block that ends before that leaves `base` unchanged.
    """
    created = not base.exists()
    base.mkdir(parents=True, exist_ok=True)
    _remove_stale(base)
    # Not tempfile.mkdtemp: a server that runs as another user could not read its mode 0700.
    folder = base / f"{_STAGING_PREFIX}{uuid.uuid4().hex}"
    try:
        with writing(folder, base):
            folder.mkdir()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if created:
            with contextlib.suppress(OSError):  # not empty: it holds a version
                base.rmdir()


def publish(folder: Path, base: Path, version: int | None) -> Path:
    """Flushes a finished staging folder to disk and renames it to its version.

    Args:
        folder: from `staging_folder(base)`.
        base: the model's folder of versions.
        version: its number; None uses the one after the highest in `base`, withdrawn or not.

    Returns:
        BASE/<version>.

    Raises:
        FileExistsError: another process took that `version` in the meantime.
    """
    sync_tree(folder)
    while True:
        number = _next(base) if version is None else version
        target = base / str(number)
        try:
            os.rename(folder, target)  # fails if the version exists
        except OSError:
            if not os.path.lexists(target):
                raise
            if version is not None:
                raise _taken(target) from None
            continue  # another export has just taken the number, so try the next
        sync(base)
        return target


def _next(base: Path) -> int:
    """Returns the number after all that were ever used.

    Anything whose name is a number counts, even a file, unless the number is too large for a
    server.

    Raises:
        ValueError: no number that a server accepts is left.
    """
    names = [child.name for child in base.iterdir()] if base.is_dir() else []
    taken = [int(name) for name in names if _is_number(name)]
    used = [*taken, *(number for number, _ in withdrawn(base))]
    last = max((number for number in used if number < 2**63), default=0)
    if last >= _LARGEST:
        raise ValueError(
            f"{base}: no version is left after {last}: use a smaller number, {base}/<number>"
        )
    return last + 1


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _taken(target: Path) -> FileExistsError:
    return FileExistsError(
        f"{target} exists, and a version is never overwritten: pass {target.parent} for the next "
        "version, or another number"
    )


def _remove_stale(base: Path) -> None:
    for folder in base.glob(f"{_STAGING_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # its owner has just finished
            if time.time() - folder.stat().st_mtime > _STALE_AFTER_S:
                _logger.warning("removing %s, left by an export that was killed", folder)
                shutil.rmtree(folder, ignore_errors=True)
