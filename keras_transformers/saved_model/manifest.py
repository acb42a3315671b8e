"""Records the origin, scores and file hashes of trained exports.

`manifest.json` is in the folder of the exports:

    saved_models/manifest.json
    saved_models/translate_de_en/1/saved_model.pb

It maps "translate_de_en/1" to the fields of `Provenance` and to `files`, name -> SHA-256.
`keras-transformers verify saved_models` checks that a folder is unchanged since publication: that
it holds what the manifest lists and nothing else that a command would serve or run.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from keras_transformers.files import check_plain, entries, read_json, write_json

MANIFEST = "manifest.json"
_NAME = re.compile(r"(?!\.\.?/)[^/\0]+/[0-9]+")  # two parts, neither pointing outside the folder


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where an export comes from.

    Attributes:
        command: the command to train and export it again.
        commit: the commit of the source that the command ran.
        scores: name -> value, where the name says which data was used.
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
        provenance: where the export comes from.

    Returns:
        FOLDER/manifest.json.

    Raises:
        FileNotFoundError: there is no export.
        ValueError: the manifest is damaged, the folder's name is not a number, or there is a link
            in it.
    """
    version = Path(version).absolute()
    if not (version / "saved_model.pb").is_file():
        raise FileNotFoundError(f"{version}: no saved_model.pb; pass the version folder")
    name = f"{version.parent.name}/{version.name}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{version}: not FOLDER/NAME/<number>; pass the version folder")
    check_plain(version)
    path = version.parent.parent / MANIFEST
    listed = read(path) if path.is_file() else {}
    hashes = {
        file.relative_to(version).as_posix(): _hash(file)
        for file, kind in entries(version)
        if kind == "file"
    }
    listed[name] = dataclasses.asdict(provenance) | {"files": hashes}
    write_json(path, dict(sorted(listed.items())))
    return path


def add_file(version: str | os.PathLike[str], file: str) -> None:
    """Lists a file that was added to an export after `record`, or replaces its hash.

    Does nothing if no manifest lists the export. The hashes of its other files stay as published.

    Args:
        version: the version folder, FOLDER/NAME/<number>.
        file: the file's path in the version folder.

    Raises:
        ValueError: the manifest is damaged.
    """
    version = Path(version).absolute()
    path = version.parent.parent / MANIFEST
    listed = read(path) if path.is_file() else {}
    entry = listed.get(f"{version.parent.name}/{version.name}")
    if entry is not None:
        entry["files"] = dict(sorted({**entry["files"], file: _hash(version / file)}.items()))
        write_json(path, listed)


def read(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Reads the entries of a manifest, "NAME/<number>" -> fields.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a manifest.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no manifest; pass the folder that holds {MANIFEST}")
    try:
        listed = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}; fetch it again") from error
    for name, entry in listed.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: entry {name!r} is not NAME/<number>; fetch it again")
        hashes = entry.get("files") if isinstance(entry, dict) else None
        if not isinstance(hashes, dict) or not all(isinstance(h, str) for h in hashes.values()):
            place = f"{path}: entry {name!r}"
            raise ValueError(f"{place}: not a manifest of exports with their files; fetch it again")
        if not isinstance(entry.get("scores", {}), dict):
            raise ValueError(
                f"{path}: entry {name!r}: scores that are not an object; fetch it again"
            )
        outside = [file for file in hashes if ".." in file.split("/") or file.startswith("/")]
        if outside:
            raise ValueError(f"{path}: {outside[0]!r} is not a file of {name}; fetch it again")
    return listed


def verify(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Compares a folder of exports with its manifest.

    Anything that the manifest does not list is wrong: versions, models, files and links. Only names
    that start with a dot, beside models or versions, are skipped: servers ignore them, and
    publishing leaves some behind.

    Returns:
        Each path that is listed or exists -> what is wrong with it, one sentence per file; an empty
        list if nothing is wrong.

    Raises:
        FileNotFoundError: the folder has no manifest.
        ValueError: the manifest is damaged.
    """
    folder = Path(folder)
    listed = read(folder / MANIFEST)
    mistakes = {name: _differences(folder, name, entry["files"]) for name, entry in listed.items()}
    for path in _unlisted(folder, listed):
        mistakes[path.relative_to(folder).as_posix()] = [f"{path} is not listed"]
    if not listed:
        mistakes[MANIFEST] = [f"{folder / MANIFEST} lists no export"]
    return mistakes


def _unlisted(folder: Path, listed: Collection[str]) -> Iterator[Path]:
    """Yields the models, versions and anything else that the manifest does not list."""
    models = {name.partition("/")[0] for name in listed}
    for child in _visible(folder):
        if child.name in models and child.is_dir() and not child.is_symlink():
            yield from (
                path for path in _visible(child) if f"{child.name}/{path.name}" not in listed
            )
        elif child.name not in (*models, MANIFEST):
            yield child


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _differences(folder: Path, name: str, expected: dict[str, str]) -> list[str]:
    """Returns how a listed version differs from its hashes; it opens no file that is not listed."""
    version = folder / name
    links = [f"{path} is a link" for path in (version.parent, version) if path.is_symlink()]
    if links:
        return [f"{link}, and its target may change" for link in links]
    if not version.is_dir():
        return [f"{version} is missing"]
    kinds = {path: kind for path, kind in entries(version) if kind != "folder"}
    wanted = {version / name: sha256 for name, sha256 in expected.items()}
    missing = [f"{path} is missing" for path in sorted(wanted.keys() - kinds.keys())]
    extra, changed = [], []
    for path, kind in kinds.items():
        if kind == "link":
            extra.append(f"{path} is a link, and its target may change")
        elif path not in wanted:
            extra.append(f"{path} is not listed")
        elif kind == "other":
            changed.append(f"{path} is not a file")
        elif (sha256 := _hash(path)) != wanted[path]:
            changed.append(f"{path} has SHA-256 {sha256}, not {wanted[path]}")
    if "saved_model.pb" not in expected and not extra:
        extra.append(f"{version}: no saved_model.pb is listed")
    return missing + extra + changed


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
