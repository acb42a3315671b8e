"""Reads safetensors with PyTorch's or Keras' names: a file, or the shards in an index."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from keras_transformers.convert.containers.arrays import (
    Arrays,
    Container,
    is_possible_shape,
)
from keras_transformers.convert.containers.keras_names import (
    KerasWeight,
    as_pytorch_arrays,
    is_keras_name,
)
from keras_transformers.convert.memory import new_array
from keras_transformers.files import read_json
from keras_transformers.files.errors import short_repr
from keras_transformers.files.reading import parse_json

__all__: list[str] = []

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_FLOATS_OF_8_BITS: dict[str, Any] = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}
_DTYPES: dict[str, Any] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    **_FLOATS_OF_8_BITS,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


@dataclass(frozen=True)
class _Stored:
    """A tensor in a file: its type, its shape, and the position of its first byte."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * np.dtype(_DTYPES[self.kind]).itemsize

    def read(self, memory: np.ndarray | None = None) -> np.ndarray:
        """Returns the tensor; ValueError if the file has changed since it was opened.

        Args:
            memory: uint8 (size,), which becomes the tensor's; new memory by default.
        """
        memory = new_array((self.size,), np.uint8) if memory is None else memory
        # Read, not mapped: a file that is overwritten in place would end the process.
        with self.file.open("rb") as opened:
            opened.seek(self.start)
            if opened.readinto(memory.data) < self.size:
                raise ValueError(f"{self.file}: truncated since it was opened: download it again")
        return memory.view(_DTYPES[self.kind]).reshape(self.shape)


def open_safetensors(path: Path) -> Arrays:
    """Opens a `.safetensors` file, or the shards that a `.safetensors.index.json` lists.

    Floats of 8 bits are read as they are; those that another tensor scales are refused.

    Raises:
        FileNotFoundError: the file, or a shard, does not exist.
        ValueError: a file is damaged or not in the safetensors format, the index is damaged, or a
            tensor's numbers are of an unsupported type.
    """
    tensors: dict[str, _Stored] = {}
    for file in shards_of(path) if path.suffix == ".json" else [path]:
        tensors.update(_tensors_in(file))
    _check_not_scaled(tensors)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes and all(map(is_keras_name, shapes)):  # written by a TensorFlow class of transformers
        weights = [KerasWeight(name, tensor.shape, tensor.read) for name, tensor in tensors.items()]
        return as_pytorch_arrays(path, weights)
    memory = np.empty(0, np.uint8)

    def lend(name: str) -> np.ndarray:
        nonlocal memory
        size = tensors[name].size
        memory = memory if size <= len(memory) else new_array((size,), np.uint8)
        array = tensors[name].read(memory[:size])
        array.flags.writeable = False
        return array

    return Arrays(path, shapes, lambda name: tensors[name].read(), lend=lend)


def _tensors_in(file: Path) -> Iterator[tuple[str, _Stored]]:
    """Yields the tensors that a file lists, after safetensors itself has checked their places."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a readable safetensors file ({error}); it may be truncated: download it "
            "again"
        ) from error
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header = parse_json(opened.read(size), file)
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        kind, shape, (start, _) = tensor["dtype"], tuple(tensor["shape"]), tensor["data_offsets"]
        if kind not in _DTYPES:
            raise ValueError(
                f"{file}: {name} is of type {kind}; expected one of {', '.join(_DTYPES)}: convert "
                "it to one of these"
            )
        if not is_possible_shape(shape):
            raise ValueError(
                f"{file}: {name} has the impossible shape {short_repr(shape)}: download it again"
            )
        yield name, _Stored(file, kind, shape, 8 + size + start)


def _check_not_scaled(tensors: Mapping[str, _Stored]) -> None:
    """Raises ValueError for floats of 8 bits that another tensor of the module scales."""
    modules = {
        name.rpartition(".")[0]: name
        for name, tensor in tensors.items()
        if tensor.kind in _FLOATS_OF_8_BITS
    }
    for name, tensor in tensors.items():
        module, _, last = name.rpartition(".")
        if module in modules and "scale" in last:
            raise ValueError(
                f"{tensor.file}: {modules[module]} is quantized to floats of 8 bits, which "
                f"{name} scales: that is not supported; get the model in bfloat16 or float32"
            )


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


CONTAINER = Container(_WHOLE, 0, _find, open_safetensors)
