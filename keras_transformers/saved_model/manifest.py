"""Records where trained exports come from, how good they are, and the hashes of their files.

`manifest.json` is in the folder of the exports:

    saved_models/manifest.json
    saved_models/translate_de_en/1/saved_model.pb

It maps "translate_de_en/1" to the fields of `Provenance` and to `files`, name -> SHA-256.
`keras-transformers verify saved_models` checks that a folder is unchanged since its publication.
"""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

from keras_transformers.files import read_json, write_json

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where an export comes from.

    Attributes:
        command: the command that trains and exports it again.
        commit: the commit of the source that the command ran.
        scores: name -> value, where the name says which data were used.
        training_data: what it was trained on.
        data_licence: the licence of the training data.
        notes: anything else that users should know.
    """

    command: str
    commit: str
    scores: dict[str, float]
    training_data: str
    data_licence: str
    notes: str = ""


def record(version: str | os.PathLike[str], provenance: Provenance) -> Path:
    """Adds an export to the manifest, or replaces its entry.

    Args:
        version: the version folder, FOLDER/NAME/<number>.
        provenance: where it comes from.

    Returns:
        FOLDER/manifest.json.

    Raises:
        FileNotFoundError: there is no export.
        ValueError: the manifest is damaged.
    """
    version = Path(version).absolute()
    if not (version / "saved_model.pb").is_file():
        raise FileNotFoundError(f"{version}: no saved_model.pb; give the version folder")
    path = version.parent.parent / MANIFEST
    entries = read(path) if path.is_file() else {}
    entry = dataclasses.asdict(provenance) | {"files": _hashes(version)}
    entries[f"{version.parent.name}/{version.name}"] = entry
    write_json(path, dict(sorted(entries.items())))
    return path


def read(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Reads the entries of a manifest, "NAME/<number>" -> fields.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a manifest.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no manifest; give the folder that holds {MANIFEST}")
    try:
        entries = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}; fetch it again") from error
    if not all(
        isinstance(entry, dict) and isinstance(entry.get("files"), dict)
        for entry in entries.values()
    ):
        raise ValueError(f"{path}: not a manifest of exports with their files; fetch it again")
    return entries


def verify(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Compares the exports in a folder with its manifest.

    Returns:
        "NAME/<number>" -> what is wrong, one sentence per file; an empty list if nothing is.

    Raises:
        FileNotFoundError: the folder has no manifest.
        ValueError: the manifest is damaged.
    """
    folder = Path(folder)
    return {
        name: _differences(folder / name, entry["files"])
        for name, entry in read(folder / MANIFEST).items()
    }


def _differences(version: Path, expected: dict[str, str]) -> list[str]:
    found = _hashes(version)
    missing = [f"{version / name} is missing" for name in sorted(expected.keys() - found.keys())]
    extra = [f"{version / name} is not listed" for name in sorted(found.keys() - expected.keys())]
    changed = [
        f"{version / name} has SHA-256 {found[name]}, not {expected[name]}"
        for name in sorted(expected.keys() & found.keys())
        if found[name] != expected[name]
    ]
    return missing + extra + changed


def _hashes(version: Path) -> dict[str, str]:
    """Returns path within the version folder -> SHA-256, for every file."""
    hashes = {}
    for path in sorted(p for p in version.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            hashes[path.relative_to(version).as_posix()] = hashlib.file_digest(
                file, "sha256"
            ).hexdigest()
    return hashes
