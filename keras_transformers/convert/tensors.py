"""Moving named tensors in and out of a model with nothing lost on the way."""

import fnmatch
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.files import replaced


@dataclass(frozen=True)
class Entry:
    """One variable of ours and the foreign tensor that holds the same numbers.

    Attributes:
        variable: the Keras variable.
        name: the foreign tensor's name.
        transpose: whether the foreign matrix is the transposed one.
    """

    variable: Any
    name: str
    transpose: bool = False

    @property
    def foreign_shape(self) -> tuple[int, ...]:
        """The shape the foreign tensor must have."""
        shape = tuple(self.variable.shape)
        return shape[::-1] if self.transpose else shape


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads every tensor of a checkpoint.

    Args:
        path: a `.safetensors` file, or a folder with `model.safetensors` or with the shards that
            `model.safetensors.index.json` lists.

    Returns:
        Arrays by name; bfloat16 and float16 as stored.

    Raises:
        FileNotFoundError: no such file, or a folder without one.
        ValueError: the file is not in the safetensors format, or is cut.
    """
    tensors: dict[str, np.ndarray] = {}
    for file in _safetensors_files(Path(path)):
        tensors.update(_read_file(file))
    return tensors


def _read_file(file: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a readable safetensors file ({error}); it may be cut: fetch it again"
        ) from error


def _safetensors_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    whole, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if index.is_file():
        shards = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        missing = [shard for shard in shards if not (path / shard).is_file()]
        if missing:
            raise FileNotFoundError(f"{index} lists {', '.join(missing)}, which {path} lacks")
        return [path / shard for shard in shards]
    raise FileNotFoundError(
        f"{path} is neither a .safetensors file nor a folder with model.safetensors in it"
    )


def assign(
    entries: Iterable[Entry],
    tensors: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
) -> None:
    """Fills variables from tensors: all of them, or none and an error that lists every trouble.

    Args:
        entries: the variables, and the tensors they take.
        tensors: what the checkpoint holds.
        source: the checkpoint's name for the message.
        ignore: wildcards of tensors that may stay unused.

    Raises:
        ValueError: tensors are missing, of another shape, or left over.
    """
    entries = list(entries)
    wanted = {entry.name for entry in entries}
    missing = sorted(wanted - set(tensors))
    unused = sorted(
        name
        for name in set(tensors) - wanted
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)
    )
    misshapen = [
        f"{entry.name} is {tuple(tensors[entry.name].shape)}, {entry.variable.path} needs "
        f"{entry.foreign_shape}"
        for entry in entries
        if entry.name in tensors and tuple(tensors[entry.name].shape) != entry.foreign_shape
    ]
    troubles = [
        f"{title}: {', '.join(names)}"
        for title, names in (
            ("missing from the file", missing),
            ("of another shape", misshapen),
            ("in the file but not used (name them in `ignore` to leave them out)", unused),
        )
        if names
    ]
    if troubles:
        raise ValueError(f"{source} does not fit the model. " + ". ".join(troubles))
    for entry in entries:
        tensor = tensors[entry.name].astype("float32")
        entry.variable.assign(tensor.T if entry.transpose else tensor)


def write_safetensors(entries: Iterable[Entry], path: str | os.PathLike[str]) -> None:
    """Writes variables under their foreign names, in float32; the file appears whole or not at all.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    from safetensors.numpy import save_file

    path = Path(path)
    tensors = {}
    for entry in entries:
        array = np.asarray(entry.variable, dtype="float32")
        tensors[entry.name] = np.ascontiguousarray(array.T if entry.transpose else array)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: make it first")
    with replaced(path) as scratch:
        save_file(tensors, scratch, {"format": "pt"})
