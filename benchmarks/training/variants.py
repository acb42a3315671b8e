"""Runs variants of one recipe: each is trained once, and continues if it was stopped."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def train(recipe: Path, folder: Path, options: Mapping[str, str]) -> None:
    """Trains a run unless it is finished; a stopped run continues from its checkpoint."""
    if (folder / "metrics.json").is_file():
        return
    command = [sys.executable, str(recipe), "--quiet"]
    command += ["--runs-dir", str(folder.parent), "--name", folder.name]
    for option, value in options.items():
        command += [f"--{option}", *value.split()]
    if (folder / "config.json").is_file():
        command.append("--resume")
    subprocess.run(command, check=True)


def finished(runs_dir: Path, names: Iterable[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields the name, the seed and the metrics of each finished run, in the order of the names."""
    for name in names:
        for path in sorted(runs_dir.glob(f"{folder_name(name, '[0-9]')}/metrics.json")):
            yield name, path.parent.name.rsplit("_", 1)[1], json.loads(path.read_text())


def folder_name(variant: str, seed: str) -> str:
    """Returns the name of a variant's run: letters, digits, hyphens and underscores."""
    plain = "".join(character if character.isalnum() else "_" for character in variant)
    return f"{plain}_{seed}"
