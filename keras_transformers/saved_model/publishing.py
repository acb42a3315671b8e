"""Publishes exports to the folders that TF Serving watches, rolls back and prunes them.

Every change is a single rename, of a complete folder or of the model config file. If the process is
killed at any moment, either the old or the new versions are served; leftovers have names that start
with a dot, which TF Serving ignores.

Without labels, TF Serving serves the newest version in a folder. With labels, the model config file
has the labels and the versions to serve (see `models_config`). Requests with neither a version nor
a label get the newest version that is served, even a canary: request the label `stable`.
"""

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_transformers.files import check_plain, entries, sync
from keras_transformers.saved_model import versions as folders
from keras_transformers.saved_model.models_config import ModelsConfig, check_names

MODELS_CONFIG = "models.config"
STABLE = "stable"
_REMOVED_PREFIX = ".removed-"


def publish(
    export: str | os.PathLike[str],
    base_path: str | os.PathLike[str],
    *,
    label: str | None = None,
    config: str | os.PathLike[str] | None = None,
    server_path: str | None = None,
    warm_up: Sequence[int] = (),
) -> Path:
    """Copies an export into a model's folder of versions, as a new version.

    Everything that can be is checked before anything is written; a later failure, such as a full
    disk, leaves no version behind.

    Args:
        export: a version folder, or a folder of versions, of which the newest is used. The folder
            itself may be a link; links inside it are rejected, because their targets may change.
        base_path: the model's folder of versions, created if missing. The export gets the next
            number; BASE_PATH/7 requests 7.
        label: the label for the new version, moved from the version that had it. If a model's first
            label is not "stable", the version served until then becomes "stable". The default is
            "stable" for a model with labels, else no label.
        config: TF Serving's model config file, which has the labels; by default `models.config`
            beside `base_path`. The first label creates it.
        server_path: `base_path` as TF Serving sees it, for the config file.
        warm_up: numbers of rows; adds warm-up requests with batches of these sizes.

    Returns:
        BASE_PATH/<number>.

    Raises:
        FileNotFoundError: there is no export, or no folder for the config file.
        FileExistsError: the version exists.
        ValueError: the config file or the export cannot be read or has a link in it, a server could
            not serve the version or its label, or the extra `serving` is missing.
        OSError: the version cannot be written.
    """
    source = folders.resolve(export).absolute()
    base, version = folders.split_target(base_path)
    if Path(os.path.realpath(base)).is_relative_to(os.path.realpath(source)):
        raise ValueError(f"{base} is inside the export {source}: publish to another folder")
    check_plain(source)
    if label is not None:
        check_names(base.name, [label], f"label={label!r} of {base}")
    if warm_up:  # needs TensorFlow, which takes seconds to import
        from keras_transformers.saved_model.warm_up import checked_sizes, write_requests

        checked_sizes(warm_up)
    with _made(base.parent), _locked(_config_path(base, config)) as config:
        models = ModelsConfig(config) if label or config.is_file() else None
        served = models.served(base) if models else set()
        labels = models.labels(base) if models else {}
        if labels and label is None:
            label = STABLE
        if models and label:
            if served and label != STABLE:
                labels.setdefault(STABLE, max(served))
            # Already as it will be written, except for the number.
            models.set_labels(base, labels | {label: 1}, server_path=server_path)
        with folders.staging_folder(base) as folder:
            _copy(source, folder)
            if warm_up:
                write_requests(folder, batch_sizes=warm_up, model_name=base.name)
            published = folders.publish(folder, base, version)
        if models and label:
            try:
                models.set_labels(base, labels | {label: int(published.name)})
                models.write()
            except BaseException:
                if int(published.name) not in ModelsConfig(config).labels(base).values():
                    _remove(base, [published])
                raise
    return published


def rollback(
    base_path: str | os.PathLike[str],
    *,
    label: str | None = None,
    config: str | os.PathLike[str] | None = None,
) -> tuple[Path, Path]:
    """Withdraws a version, so that the previous one is served again.

    For a model with labels, the config file changes: all labels of the version move to the previous
    version. For a model without labels, the folder is renamed to `.withdrawn-<number>`, and its
    number is never used again.

    Args:
        base_path: the model's folder of versions.
        label: the label of the version to withdraw; by default the newest version that is served.
        config: see `publish`.

    Returns:
        The version that was withdrawn and the version that replaces it.

    Raises:
        FileNotFoundError: there is no version.
        ValueError: no version is served or has the label, or there is no previous version. See also
            `publish`.
        FileExistsError: the name for the withdrawn version is taken.
    """
    base = Path(base_path).absolute()
    if not folders.versions(base):
        raise FileNotFoundError(f"{base}: no version folder; pass a model's folder of versions")
    if config is not None and not Path(config).is_file():
        raise FileNotFoundError(f"{config}: no such config file; check the path")
    with _locked(_config_path(base, config)) as config:
        paths = folders.version_folders(base)
        models = ModelsConfig(config) if config.is_file() else None
        labels = models.labels(base) if models else {}
        if label is not None and label not in labels:
            names = ", ".join(sorted(labels)) or "none"
            raise ValueError(f"{config}: {base.name} has no label {label!r}; it has {names}")
        served = models.served(base) if models else set(list(paths)[-1:])
        if not served and label is None:
            raise ValueError(f"{config}: serves no version of {base.name}; publish one instead")
        bad = labels[label] if label else max(served)
        before = [number for number in paths if number < bad]
        if not before:
            raise ValueError(
                f"{base}: no version before {bad} to go back to; publish a good one instead"
            )
        good = before[-1]
        if models and labels:
            models.set_labels(
                base, {name: good if number == bad else number for name, number in labels.items()}
            )
            models.write()
        else:
            withdrawn = base / f"{folders.WITHDRAWN_PREFIX}{bad}"
            if os.path.lexists(withdrawn):
                raise FileExistsError(
                    f"{withdrawn} exists, and version {bad} would get that name: move it away first"
                )
            os.rename(paths[bad], withdrawn)
            sync(base)
    return paths.get(bad, base / str(bad)), paths[good]


def prune(
    base_path: str | os.PathLike[str],
    *,
    keep: int,
    config: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Removes old and withdrawn versions.

    Args:
        base_path: the model's folder of versions.
        keep: how many of the newest versions to keep; those served or labelled also stay.
        config: see `publish`.

    Returns:
        The folders that were removed.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: `keep` is below 1. See also `publish`.
    """
    check_keep(keep)
    base = Path(base_path).absolute()
    if not base.is_dir():
        raise FileNotFoundError(f"{base}: no such folder; pass a model's folder of versions")
    with _locked(_config_path(base, config)) as config:
        existing = folders.version_folders(base)
        stay = set(list(existing)[-keep:])
        if config.is_file():
            models = ModelsConfig(config)
            stay |= models.served(base) | set(models.labels(base).values())
        removed = [folder for number, folder in existing.items() if number not in stay]
        newest = max(existing, default=0)  # so that lower numbers are never used again
        removed += [base / name for number, name in folders.withdrawn(base) if number < newest]
        _remove(base, removed)
    return removed


def check_keep(keep: int) -> None:
    """Checks the number of versions to keep.

    Raises:
        ValueError: it is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: expected 1 or more; the version that is served stays")


def _remove(base: Path, removed: Sequence[Path]) -> None:
    """Removes version folders, and folders that a killed process left half removed."""
    for folder in removed:
        # Renamed first, because a server must not see half a version.
        os.rename(folder, base / f"{_REMOVED_PREFIX}{folder.name}-{uuid.uuid4().hex}")
    sync(base)
    for folder in base.glob(f"{_REMOVED_PREFIX}*"):
        if folder.is_dir() and not folder.is_symlink():
            try:
                shutil.rmtree(folder)
            except RecursionError:
                raise OSError(
                    f"{folder}: folders nested too deeply for Python: remove it with rm -r"
                ) from None
        else:
            folder.unlink()


def _copy(source: Path, target: Path) -> None:
    """Copies the contents of a folder into another, and stops at the first error."""
    path = source
    try:
        for path, kind in entries(source):
            copy = target / path.relative_to(source)
            if kind == "folder":
                copy.mkdir()
            else:
                shutil.copy2(path, copy, follow_symlinks=False)
    except OSError as error:
        raise OSError(
            f"{path}: cannot be copied to {target.parent} ({error.strerror or error}); nothing was "
            "published"
        ) from error


def _config_path(base: Path, config: str | os.PathLike[str] | None) -> Path:
    return Path(config).absolute() if config else base.parent / MODELS_CONFIG


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Creates a folder and its parents; if the block fails, removes those that are empty."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def _locked(config: Path) -> Iterator[Path]:
    """Locks out other processes that change the config file; the lock ends with its process.

    Raises:
        FileNotFoundError: the file's folder does not exist.
    """
    if not config.parent.is_dir():
        raise FileNotFoundError(f"{config.parent}: no such folder for {config.name}: create it")
    descriptor = os.open(config.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield config
    finally:
        os.close(descriptor)
