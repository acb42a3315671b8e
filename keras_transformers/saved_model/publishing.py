"""Puts exports where TF Serving looks for them, and takes them away again.

Every change is one rename, of a complete folder or of the model config file. A process killed at
any moment leaves either the old or the new versions served; its leftovers have names that start
with a dot, which TF Serving ignores.

Without labels, TF Serving serves the newest version in a folder. With labels, the model config file
has the labels and the versions to serve (see `models_config`). Requests with neither a version nor
a label get the newest version that is served, even a canary: ask for label `stable`.
"""

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_transformers.files import sync
from keras_transformers.saved_model import versions as folders
from keras_transformers.saved_model.models_config import ModelsConfig

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

    Args:
        export: a version folder, or a folder of versions, of which the newest is used.
        base_path: the model's folder of versions, created if missing. The export gets the next
            number; BASE_PATH/7 asks for 7.
        label: the label of the new version, taken from the version that had it. If a model's first
            label is not "stable", the version served until then becomes "stable". The default is
            "stable" for a model with labels, else no label.
        config: TF Serving's model config file, which has the labels; by default `models.config`
            beside `base_path`. The first label creates it.
        server_path: `base_path` as TF Serving sees it, for the config file.
        warm_up: adds warm-up requests with batches of these numbers of rows.

    Returns:
        BASE_PATH/<number>.

    Raises:
        FileNotFoundError: there is no export.
        FileExistsError: the version exists.
        ValueError: the config file or the export cannot be read, or the extra `serving` is missing.
    """
    source = folders.resolve(export).absolute()
    base, version = folders.split_target(base_path)
    if label == "":
        raise ValueError("label='': give a name such as 'stable' or 'canary', or none")
    base.parent.mkdir(parents=True, exist_ok=True)
    config = _config_path(base, config)
    with _locked(config.parent):
        # Parsed first, so that errors in the file are reported before anything changes.
        models = ModelsConfig(config) if label or config.is_file() else None
        served = models.served(base) if models else set()
        with folders.staging_folder(base) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
            if warm_up:  # needs TensorFlow, which takes seconds to import
                from keras_transformers.saved_model.warm_up import write_requests

                write_requests(folder, batch_sizes=warm_up, model_name=base.name)
            published = folders.publish(folder, base, version)
        if models and (label or models.labels(base)):
            label, labels = label or STABLE, models.labels(base)
            if served and label != STABLE:
                labels.setdefault(STABLE, max(served))
            labels[label] = int(published.name)
            models.set_labels(base, labels, server_path=server_path)
            models.write()
    return published


def rollback(
    base_path: str | os.PathLike[str],
    *,
    label: str | None = None,
    config: str | os.PathLike[str] | None = None,
) -> tuple[Path, Path]:
    """Withdraws a version, so that the one before it is served again.

    For a model with labels, the config file changes: all labels of the version move to the version
    before it. For a model without labels, the folder is renamed to `.withdrawn-<number>`, and its
    number is never used again.

    Args:
        base_path: the model's folder of versions.
        label: the label of the version to withdraw; by default the newest version that is served.
        config: see `publish`.

    Returns:
        The version that was withdrawn and the version that replaces it.

    Raises:
        FileNotFoundError: there is no version.
        ValueError: no version is served or has the label, or there is no version before it. See
            also `publish`.
    """
    base = Path(base_path).absolute()
    config = _config_path(base, config)
    if not folders.versions(base):
        raise FileNotFoundError(f"{base}: no version folder; give a model's folder of versions")
    with _locked(config.parent):
        models = ModelsConfig(config) if config.is_file() else None
        labels = models.labels(base) if models else {}
        if label is not None and label not in labels:
            known = ", ".join(sorted(labels)) or "none"
            raise ValueError(f"{config}: {base.name} has no label {label!r}; it has {known}")
        served = models.served(base) if models else set(folders.versions(base)[-1:])
        if not served and label is None:
            raise ValueError(f"{config}: serves no version of {base.name}; publish one instead")
        bad = labels[label] if label else max(served)
        before = [number for number in folders.versions(base) if number < bad]
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
            os.rename(base / str(bad), base / f"{folders.WITHDRAWN_PREFIX}{bad}")
            sync(base)
    return base / str(bad), base / str(good)


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
        ValueError: `keep` is below 1. See also `publish`.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: give 1 or more; the version that is served stays")
    base = Path(base_path).absolute()
    config = _config_path(base, config)
    with _locked(config.parent):
        existing = folders.versions(base)
        stay = set(existing[-keep:])
        if config.is_file():
            models = ModelsConfig(config)
            stay |= models.served(base) | set(models.labels(base).values())
        removed = [base / str(number) for number in existing if number not in stay]
        newest = max(existing, default=0)  # ensures that lower numbers are never used again
        removed += [base / name for number, name in folders.withdrawn(base) if number < newest]
        for folder in removed:
            # Renamed first: a server must not see half a version.
            os.rename(folder, base / f"{_REMOVED_PREFIX}{folder.name}-{uuid.uuid4().hex}")
        sync(base)
        for folder in base.glob(f"{_REMOVED_PREFIX}*"):  # also those a killed process left
            shutil.rmtree(folder)
    return removed


def _config_path(base: Path, config: str | os.PathLike[str] | None) -> Path:
    return Path(config).absolute() if config else base.parent / MODELS_CONFIG


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks out other processes that change the config file; the lock ends with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
