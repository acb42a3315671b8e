"""Reads safetensors with PyTorch's or Keras' names: a file, or the shards in an index."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.convert.containers.keras_names import (
    KerasWeight,
    as_pytorch_arrays,
    is_keras_name,
)
from keras_transformers.files import read_json

__all__: list[str] = []

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def open_safetensors(path: Path) -> Arrays:
    """Opens a `.safetensors` file, or the shards that a `.safetensors.index.json` lists.

    Raises:
        FileNotFoundError: the file, or a shard, does not exist.
        ValueError: a file is damaged or not in the safetensors format, or the index is damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    places: dict[str, Path] = {}
    for file in shards_of(path) if path.suffix == ".json" else [path]:
        with _opened(file) as opened:
            for name in opened.keys():  # noqa: SIM118
                shapes[name] = tuple(opened.get_slice(name).get_shape())
                places[name] = file

    def read(name: str) -> np.ndarray:
        with _opened(places[name]) as opened:
            array: np.ndarray = opened.get_tensor(name)
        return array

    if shapes and all(map(is_keras_name, shapes)):  # written by a TensorFlow class of transformers
        weights = [KerasWeight(name, shape, partial(read, name)) for name, shape in shapes.items()]
        return as_pytorch_arrays(path, weights)
    return Arrays(path, shapes, read)


def shards_of(index: Path) -> list[Path]:
    """Returns the files that an index of weights lists, all in its own folder.

    Raises:
        FileNotFoundError: the index, or a file that it lists, does not exist.
        ValueError: the index is damaged.
    """
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f'{index}: has no "weight_map" from tensors to files: download it again')
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not shard or Path(shard).name != shard:
            raise ValueError(
                f"{index}: weight_map has {shard!r} for {tensor}, not the name of a file beside it"
            )
    names = sorted(set(weight_map.values()))
    present = {file.name for file in index.parent.iterdir() if file.is_file()}
    missing = [name for name in names if name not in present]
    if missing:
        raise FileNotFoundError(f"{index} lists {', '.join(missing)}, which {index.parent} lacks")
    return [index.parent / name for name in names]


def _find(path: Path) -> Path | None:
    if path.is_file():
        named = path.suffix == ".safetensors" or path.name == _INDEX
        return path if named or _has_header(path) else None
    return next((file for name in (_WHOLE, _INDEX) if (file := path / name).is_file()), None)


def _has_header(file: Path) -> bool:
    """Returns whether a file starts like safetensors: the size of a JSON object, and its brace."""
    with file.open("rb") as opened:
        start = opened.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") < file.stat().st_size


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            yield opened
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a readable safetensors file ({error}); it may be truncated: download it "
            "again"
        ) from error


CONTAINER = Container(_WHOLE, 0, _find, open_safetensors)
