"""Checks whether a run may start in a folder, or continue there."""

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.runs.options import Options
from keras_transformers.runs.resume.folder_lock import LOCK

__all__ = ["check_new_run", "check_same", "write_config"]

CONFIG = "config.json"


def check_new_run(folder: Path) -> Path:
    """Returns the folder of a new run after checking that it is free.

    Raises:
        FileExistsError: it exists and is not empty: a run is never overwritten.
    """
    is_used = folder.is_dir() and any(path.name != LOCK for path in folder.iterdir())
    if folder.is_file() or is_used:
        raise FileExistsError(f"{folder} exists: choose another --name, or remove the folder")
    return folder


def check_same(
    folder: Path,
    config: Options,
    *,
    may_differ: Collection[str] = (),
    may_grow: Collection[str] = (),
) -> Path:
    """Returns a run's folder, after checking that the run was started with this configuration.

    Args:
        folder: the run's folder.
        config: a dataclass.
        may_differ: the fields that may differ.
        may_grow: the numeric fields that may be higher than they were.

    Raises:
        FileNotFoundError: the folder has no run.
        ValueError: the run has another configuration; the message lists the differences.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no run to resume; check --name, or leave out --resume")
    now = _as_written(dataclasses.asdict(config))
    before = _as_written(_defaults(config)) | files.read_json(path)  # older runs lack new options
    differences = [
        f"{name} was {before.get(name)}, is {now.get(name)}"
        for name in sorted((before.keys() | now.keys()) - set(may_differ))
        if before.get(name) != now.get(name)
        and not (name in may_grow and before.get(name, now[name]) < now[name])
    ]
    if differences:
        raise ValueError(
            f"{folder} was started with another configuration: {', '.join(differences)}; pass the "
            "same options, or start in another folder (--name)"
        )
    return folder


def write_config(folder: Path, config: Options) -> None:
    """Writes a run's configuration.

    If the run will be longer than it was, this is printed, and the earlier configuration stays
    beside the new one, as `config_12_epochs.json`, because the figures depend on both.
    """
    path, options = folder / CONFIG, dataclasses.asdict(config)
    if path.is_file():
        before = files.read_json(path)
        epochs = before.get("epochs", options["epochs"])
        if epochs < options["epochs"]:
            files.write_json(folder / f"config_{epochs}_epochs.json", before)
            print(
                f"{folder}: {options['epochs']} epochs instead of {epochs}, so the schedule changes"
            )
    files.write_json(path, options)


def _as_written(options: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(options, default=str))


def _defaults(config: Options) -> dict[str, Any]:
    """Returns the options that may be left out, with their defaults."""
    options = {}
    for field in dataclasses.fields(config):
        if field.default is not dataclasses.MISSING:
            options[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            options[field.name] = field.default_factory()
    return options
