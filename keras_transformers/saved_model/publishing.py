"""Publishes exports to the folders that TF Serving watches, rolls back and prunes them.

Every change is a rename, of a complete folder or of the model config file. If the process is
killed at any moment, either the old or the new versions are served; leftovers have names that start
with a dot, which TF Serving ignores.

Without labels, TF Serving serves the newest version in a folder. With labels, the model config file
has the labels and the versions to serve (see `models_config`). Requests with neither a version nor
a label get the newest version that is served, even a canary: request the label `stable`.
"""

import contextlib
import fcntl
import filecmp
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_transformers.files import check_plain, entries, one_line, sync
from keras_transformers.files.toml import Table
from keras_transformers.saved_model import versions as folders
from keras_transformers.saved_model.description import WARM_UP_FILE
from keras_transformers.saved_model.models_config import ModelsConfig, check_names

MODELS_CONFIG = "models.config"
STABLE = "stable"
_REMOVED_PREFIX = ".removed-"


@dataclass(frozen=True)
class Publication:
    """An export to publish.

    Attributes:
        export: a version folder, or a folder of versions, of which the newest is used. The folder
            itself may be a link; links inside it are rejected, because their targets may change.
        base_path: the model's folder of versions, created if missing. The export gets the next
            number; BASE_PATH/7 requests 7.
        labels: the labels for the new version, moved from the versions that had them. If a model's
            first labels are not "stable", the version served until then becomes "stable". Without
            labels, the version becomes "stable" if the model has labels.
        server_path: `base_path` as TF Serving sees it, for the config file.
        warm_up: numbers of rows; adds warm-up requests with batches of these sizes.
        place: where a plan says so, for errors, such as "release.toml: [[publish]] 1".
    """

    export: str | os.PathLike[str]
    base_path: str | os.PathLike[str]
    labels: Sequence[str] = ()
    server_path: str | None = None
    warm_up: Sequence[int] = ()
    place: str = ""


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
        export: see `Publication`.
        base_path: see `Publication`.
        label: a label for the new version; see `Publication`.
        config: TF Serving's model config file, which has the labels; by default `models.config`
            beside `base_path`. The first label creates it.
        server_path: see `Publication`.
        warm_up: see `Publication`.

    Returns:
        BASE_PATH/<number>.

    Raises:
        FileNotFoundError: there is no export, or no folder for the config file.
        FileExistsError: the version exists.
        ValueError: the config file or the export cannot be read or has a link in it, a server could
            not serve the version or its label, or the extra `serving` is missing.
        OSError: the version cannot be written.
    """
    labels = () if label is None else (label,)
    one = Publication(export, base_path, labels, server_path, tuple(warm_up))
    return publish_all([one], config=config)[0]


def publish_all(
    publications: Sequence[Publication],
    *,
    config: str | os.PathLike[str] | None = None,
    again: bool = False,
) -> list[Path]:
    """Publishes exports together: all of them, or none if one cannot be.

    All are checked, then copied beside their final places, and only then renamed. The config file
    changes once, after that: with labels, a server sees all new versions at the same time.

    Args:
        publications: the exports. Those of one model get their numbers in this order.
        config: see `publish`. All models share one.
        again: take an export that is already published, file for file, as it is; then a call that
            was interrupted can be repeated.

    Returns:
        The version of each.

    Raises:
        ValueError: two publications give a model the same label or version, or the models have
            different config files. For this and other errors, see `publish`.
    """
    tasks = []
    for publication in publications:
        with _naming(publication):
            tasks.append(_Task.of(publication, again=again))
    configs = {_config_path(task.base, config) for task in tasks}
    if len(configs) != 1:
        files = ", ".join(sorted(map(str, configs))) or "none"
        raise ValueError(f"config files {files}: publish models of one file together, or name one")
    _check_apart(tasks)
    if any(task.publication.warm_up for task in tasks):  # needs TensorFlow, which takes seconds
        from keras_transformers.saved_model.warm_up import checked_sizes, write_requests

        for task in tasks:
            if task.publication.warm_up:
                with _naming(task.publication):
                    checked_sizes(task.publication.warm_up)
    with contextlib.ExitStack() as stack:
        for task in tasks:
            stack.enter_context(_made(task.base.parent))
        file = stack.enter_context(_locked(configs.pop()))
        has_labels = any(task.publication.labels for task in tasks)
        models = ModelsConfig(file) if has_labels or file.is_file() else None
        served = {task.base: models.served(task.base) for task in tasks} if models else {}
        _set_labels(models, tasks, served)  # already as it will be written, except for the numbers
        for task in tasks:
            if task.version_folder is None:
                folder = stack.enter_context(folders.staging_folder(task.base))
                with _naming(task.publication):
                    _copy(task.source, folder)
                    if sizes := task.publication.warm_up:
                        write_requests(folder, batch_sizes=sizes, model_name=task.base.name)
                task.staged = folder
        try:
            for task in tasks:
                if task.staged is not None:
                    task.version_folder = folders.publish(task.staged, task.base, task.version)
            models = ModelsConfig(file) if models else None
            if _set_labels(models, tasks, served) and models is not None:
                models.write()
        except BaseException:
            labelled = ModelsConfig(file)
            for task in tasks:
                version = task.version_folder
                if task.staged is None or version is None:
                    continue
                if int(version.name) not in labelled.labels(task.base).values():
                    _remove(task.base, [version])
            raise
    return [task.version_folder for task in tasks if task.version_folder is not None]


@dataclass(eq=False)
class _Task:
    """A publication in progress: its folders, and where it stands."""

    publication: Publication
    source: Path
    base: Path
    version: int | None  # as requested
    staged: Path | None = None  # the copy, before it is renamed
    version_folder: Path | None = None

    @classmethod
    def of(cls, publication: Publication, *, again: bool) -> "_Task":
        """Returns a publication after all checks that need no lock."""
        source = folders.resolve(publication.export).absolute()
        check_plain(source)
        existing = _same_version(source, publication) if again else None
        if existing is None:
            base, version = folders.split_target(publication.base_path)
        else:
            base, version = existing.parent, None
        if Path(os.path.realpath(base)).is_relative_to(os.path.realpath(source)):
            raise ValueError(f"{base} is inside the export {source}: publish to another folder")
        if publication.labels:  # without, a server may be told another name
            check_names(base.name, publication.labels, f"{base}")
        return cls(publication, source, base, version, version_folder=existing)


@contextlib.contextmanager
def _naming(publication: Publication) -> Iterator[None]:
    """Makes errors in the block start with the publication's place in a plan."""
    try:
        yield
    except (FileExistsError, FileNotFoundError, ValueError) as error:
        if not publication.place:
            raise
        kinds = (FileExistsError, FileNotFoundError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{publication.place}: {one_line(error)}") from error


def _same_version(source: Path, publication: Publication) -> Path | None:
    """Returns the newest version with the same files as an export, besides warm-up requests."""
    target = Path(publication.base_path).absolute()
    is_version = target in folders.version_folders(target.parent).values()
    newest_first = [target] if is_version else reversed(folders.version_folders(target).values())
    files = _files(source)
    for folder in newest_first:
        warm = WARM_UP_FILE in files or bool(publication.warm_up)
        others = _files(folder)
        is_same = files - {WARM_UP_FILE} == others - {WARM_UP_FILE}
        if is_same and warm == (WARM_UP_FILE in others):
            pairs = ((source / name, folder / name) for name in files - {WARM_UP_FILE})
            if all(filecmp.cmp(one, other, shallow=False) for one, other in pairs):
                return folder
    return None


def _files(folder: Path) -> set[str]:
    return {f"{path.relative_to(folder)}" for path, kind in entries(folder) if kind == "file"}


def _check_apart(tasks: Sequence[_Task]) -> None:
    """Checks that no model gets a label or a version twice."""
    places = [
        (task.base, what)
        for task in tasks
        for what in (
            *(f"the label {label!r}" for label in task.publication.labels),
            *(() if task.version is None else (f"version {task.version}",)),
        )
    ]
    for base, what in places:
        if places.count((base, what)) > 1:
            raise ValueError(f"{base} gets {what} twice: publish it once")


def _set_labels(
    models: ModelsConfig | None, tasks: Sequence[_Task], served: Mapping[Path, set[int]]
) -> bool:
    """Sets the labels of all new versions; returns whether there are any.

    Args:
        models: the config file; None if there is none.
        tasks: those without a version folder get version 1 for now.
        served: the versions that each model served before.
    """
    changed = False
    for task in tasks:
        if models is None:
            break
        labels = models.labels(task.base)
        new = task.publication.labels or ((STABLE,) if labels else ())
        if not new:
            continue
        number = 1 if task.version_folder is None else int(task.version_folder.name)
        if served[task.base] and STABLE not in new:
            labels.setdefault(STABLE, max(served[task.base]))
        labels |= dict.fromkeys(new, number)
        models.set_labels(task.base, labels, server_path=task.publication.server_path)
        changed = True
    return changed


def read_plan(path: str | os.PathLike[str]) -> tuple[list[Publication], Path | None]:
    """Reads which exports to publish together from a TOML file, with a table for each.

        config = "models/models.config"    # optional

        [[publish]]
        export = "runs/film/2"
        base_path = "models/sentiment"     # models/sentiment/7 for version 7
        labels = ["canary"]                # optional, as the following
        warm_up = [1, 8]
        server_path = "/models/sentiment"

    Relative paths start at the file's folder.

    Returns:
        The publications, and the config file, None for the default.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not TOML, or a value in it has the wrong type or an unknown key.
    """
    plan = Table.read(path)
    config = plan.path("config")
    publications = []
    for table in plan.tables("publish"):
        publications.append(
            Publication(
                export=table.required_path("export"),
                base_path=table.required_path("base_path"),
                labels=table.texts("labels"),
                server_path=table.take("server_path", str),
                warm_up=table.integers("warm_up"),
                place=table.place,
            )
        )
        table.end()
    plan.end()
    if not publications:
        raise ValueError(f"{plan.place}: nothing to publish: write [[publish]] tables")
    return publications, config


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
