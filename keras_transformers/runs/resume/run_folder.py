"""Whether a run may begin in a folder, or go on there."""

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.runs.resume.folder_lock import LOCK

__all__ = ["check_new_run", "check_same"]

CONFIG = "config.json"


def check_new_run(folder: Path) -> Path:
    """Returns the folder of a new run after checking that it is free.

    Raises:
        FileExistsError: it exists and is not empty: a run is never overwritten.
    """
    is_used = folder.is_dir() and any(path.name != LOCK for path in folder.iterdir())
    if folder.is_file() or is_used:
        raise FileExistsError(f"{folder} exists: give the run another --name, or remove the folder")
    return folder


def check_same(folder: Path, config: Any, *, may_differ: Collection[str] = ()) -> Path:
    """Returns a run's folder, after checking that the run was started with this configuration.

    Args:
        folder: the run's folder.
        config: a dataclass.
        may_differ: the fields that may differ.

    Raises:
        FileNotFoundError: no run was started there.
        ValueError: the run has another configuration; the message lists the differences.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no run to resume; check --name, or leave out --resume")
    before = files.read_json(path)
    now = json.loads(json.dumps(dataclasses.asdict(config), default=str))  # as it was written
    differences = [
        f"{name} was {before.get(name)}, is {now.get(name)}"
        for name in sorted((before.keys() | now.keys()) - set(may_differ))
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise ValueError(
            f"{folder} was started with another configuration: {', '.join(differences)}; give the "
            "same options, or another --name"
        )
    return folder
