"""Reads PyTorch's files (`pytorch_model.bin`, `.pt`) as data: nothing in them is executed.

`torch.save` writes a pickle that says where each tensor lies in the bytes beside it. A pickle is a
program whose instructions may call any function. The reader here is its own machine, with the few
instructions and the dozen names that tensors need. It imports nothing and calls nothing; other
instructions and names are rejected. The bytes of tensors are mapped into memory, not copied.
"""

import io
import math
import mmap
import pickletools
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import ml_dtypes
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container, is_possible_shape
from keras_transformers.convert.containers.safetensors import shards_of

__all__: list[str] = []

_WHOLE = "pytorch_model.bin"
_INDEX = "pytorch_model.bin.index.json"
_ENDS = (".bin", ".pt", ".pth", ".ckpt")
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
# The start of files of torch.save before it wrote zip archives.
_LEGACY_MAGIC, _LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001
_LARGEST_PICKLE = 8 << 20  # bytes; one tensor takes about 200
_MOST_INSTRUCTIONS = 2**20  # one tensor takes about 40; each can make an object of 60 bytes
_LARGEST_SIZE = 2**63 - 1

_STORAGES: dict[str, np.dtype] = {
    f"torch.{name}Storage": np.dtype(kind)
    for name, kind in {
        "Float": "<f4",
        "Double": "<f8",
        "Half": "<f2",
        "BFloat16": ml_dtypes.bfloat16,
        "Long": "<i8",
        "Int": "<i4",
        "Short": "<i2",
        "Char": "i1",
        "Byte": "u1",
        "Bool": "?",
    }.items()
}
_TENSORS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_NAMES = {"collections.OrderedDict", "torch.Size", *_STORAGES, *_TENSORS, *_PARAMETERS}

# Instructions of pickles: those that push a constant, their argument or an empty object, and those
# that make a tuple of this many objects.
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINSTRING", "SHORT_BINSTRING"),
}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

_REMEDY = (
    "save the weights alone, with torch.save(model.state_dict(), ...) or, better, "
    "safetensors.torch.save_file"
)
_TRUNCATED = "it may be truncated: download it again"


@dataclass(frozen=True)
class _Name:
    """The name of a class or function in a pickle, never the object itself."""

    name: str


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: np.dtype
    size: int  # in elements, not bytes


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int  # elements before the first
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _RefusedError(Exception):
    """Says why a file cannot be read, without its name."""


def open_pickle(path: Path) -> Arrays:
    """Opens a file of `torch.save`, or the shards that a `.bin.index.json` lists; runs no code.

    It reads the zip archives of PyTorch 1.6 and later and the streams of older versions. They must
    hold a dictionary of tensors or parameters, such as `model.state_dict()`.

    Raises:
        FileNotFoundError: the file, or a shard, does not exist.
        ValueError: a file is damaged, contains anything but tensors, or has tensors outside its
            bytes.
    """
    places: dict[str, tuple[_Tensor, memoryview]] = {}
    for file in shards_of(path) if path.suffix == ".json" else [path]:
        try:
            places.update(_tensors_in(file))
        except _RefusedError as error:
            raise ValueError(f"{file} cannot be read: {error}") from error.__cause__

    def read(name: str) -> np.ndarray:
        tensor, values = places[name]
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, tensor.storage.dtype)
        stored = np.frombuffer(values, tensor.storage.dtype)[tensor.offset :]
        sizes = zip(tensor.shape, tensor.strides, strict=True)
        strides = [stride * stored.itemsize if size > 1 else 0 for size, stride in sizes]
        return np.lib.stride_tricks.as_strided(stored, tensor.shape, strides, writeable=False)

    return Arrays(path, {name: tensor.shape for name, (tensor, _) in places.items()}, read)


def _tensors_in(file: Path) -> Iterator[tuple[str, tuple[_Tensor, memoryview]]]:
    """Yields each tensor's name, the tensor and the bytes of its storage."""
    with file.open("rb") as opened:
        if not opened.read(1):
            raise _RefusedError("it is empty: download it again")
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    root, storages = (_read_zip if mapped[:4] == _ZIP else _read_stream)(mapped)
    if not isinstance(root, dict):
        raise _RefusedError(f"it holds {_kind(root)}, not a dictionary of tensors: {_REMEDY}")
    for name, tensor in root.items():
        if not isinstance(tensor, _Tensor) or not isinstance(name, str) or not name.isprintable():
            raise _RefusedError(f"{name!r:.100} is {_kind(tensor)}, not a tensor: {_REMEDY}")
        values = storages.get(tensor.storage.key)
        if values is None:
            raise _RefusedError(
                f"{name} lies in storage {tensor.storage.key!r:.100}, which is missing"
            )
        _check(name, tensor, len(values))
        yield name, (tensor, values)


def _check(name: str, tensor: _Tensor, num_bytes: int) -> None:
    """Rejects a tensor with elements outside its storage, or more of them than the storage has."""
    storage = tensor.storage
    if storage.size * storage.dtype.itemsize != num_bytes:
        raise _RefusedError(
            f"{name} lies in a storage of {storage.size} {storage.dtype}, for which the file has "
            f"{num_bytes} bytes; {_TRUNCATED}"
        )
    sizes = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((size - 1) * stride for size, stride in sizes)
    fits = last < storage.size and math.prod(tensor.shape) <= storage.size
    if not fits and 0 not in tensor.shape:
        raise _RefusedError(
            f"{name} of shape {tensor.shape} with strides {tensor.strides} at {tensor.offset} has "
            f"numbers outside its storage of {storage.size}, or repeats them: the file is damaged, "
            "or save tensor.contiguous()"
        )


def _read_zip(file: mmap.mmap) -> tuple[Any, dict[str, memoryview]]:
    """Reads a zip archive: NAME/data.pkl has the dictionary, NAME/data/KEY a storage."""
    mapped = memoryview(file)
    try:
        with zipfile.ZipFile(cast(IO[bytes], file)) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise _RefusedError(f"no readable zip archive ({error}); {_TRUNCATED}") from error
    members = {info.filename: info for info in listed}
    if len(members) != len(listed):
        raise _RefusedError("several of its members have the same name: the file is damaged")
    folders = [name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(folders) != 1:
        raise _RefusedError(
            f"a zip archive with {len(folders)} data.pkl, where torch.save writes one"
        )
    (folder,) = folders
    order = members.get(f"{folder}byteorder")
    if order and bytes(_stored(mapped, order)) != b"little":
        raise _RefusedError(
            "its numbers have another byte order: save it on a little-endian machine"
        )
    pickle = _stored(mapped, members[f"{folder}data.pkl"])
    if len(pickle) > _LARGEST_PICKLE:
        raise _RefusedError(f"its data.pkl has {len(pickle)} bytes, more than {_LARGEST_PICKLE}")
    data = f"{folder}data/"
    storages = {
        name.removeprefix(data): _stored(mapped, info)
        for name, info in members.items()
        if name.startswith(data)
    }
    return _run(io.BytesIO(pickle), {}), storages


def _stored(mapped: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Returns the bytes of a member of a zip archive, which must be stored uncompressed."""
    name = f"its member {info.filename!r:.100}"
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1:
        raise _RefusedError(
            f"{name} is compressed or encrypted, unlike those of torch.save: {_REMEDY}"
        )
    header = mapped[max(info.header_offset, 0) :][:30]
    if len(header) < 30 or header[:4] != _ZIP:
        raise _RefusedError(f"{name} has no header: the file is damaged")
    lengths = [int.from_bytes(header[at : at + 2], "little") for at in (26, 28)]
    start = info.header_offset + len(header) + sum(lengths)
    if info.file_size != info.compress_size or start + info.file_size > len(mapped):
        raise _RefusedError(f"{name} does not lie within the file; {_TRUNCATED}")
    return mapped[start : start + info.file_size]


def _read_stream(file: mmap.mmap) -> tuple[Any, dict[str, memoryview]]:
    """Reads five pickles, which the size and bytes of each storage follow."""
    mapped = memoryview(file)
    stream = io.BytesIO(mapped[:_LARGEST_PICKLE])
    if mapped[:1] != _PICKLE or _run(stream, {}) != _LEGACY_MAGIC:
        raise _RefusedError(f"torch.save did not write it: {_REMEDY}")
    version, system = _run(stream, {}), _run(stream, {})
    if version != _LEGACY_VERSION:
        text = str(version) if type(version) is int else _kind(version)
        raise _RefusedError(f"it is of version {text}; expected {_LEGACY_VERSION}")
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _RefusedError(
            "its numbers have another byte order: save it on a little-endian machine"
        )
    declarations: dict[str, _Storage] = {}
    root, keys = _run(stream, declarations), _run(stream, {})
    if not isinstance(keys, list) or {type(key) for key in keys} - {str}:
        raise _RefusedError("it has no list of storages: the file is damaged")
    storages, start = {}, stream.tell()
    for key in keys:
        if key not in declarations or key in storages:
            raise _RefusedError(
                f"no tensor or several lie in storage {key!r:.100}: the file is damaged"
            )
        size = int.from_bytes(mapped[start : start + 8], "little", signed=True)
        end = start + 8 + declarations[key].size * declarations[key].dtype.itemsize
        if size != declarations[key].size or end > len(mapped):
            raise _RefusedError(
                f"storage {key!r:.100} has {size} numbers, expected {declarations[key].size}, or "
                f"not all of them; {_TRUNCATED}"
            )
        storages[key] = mapped[start + 8 : end]
        start = end
    return root, storages


def _run(stream: io.BytesIO, storages: dict[str, _Storage]) -> Any:
    """Returns the object in the pickle at a stream's position; fills `storages` by key."""
    try:
        return _Machine(storages).run(stream)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise _RefusedError(f"its pickle is damaged ({error!r:.200}); {_TRUNCATED}") from error


class _Machine:
    """Follows the instructions of a pickle that build tensors; rejects all others."""

    def __init__(self, storages: dict[str, _Storage]) -> None:
        self.storages = storages
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks below each mark
        self.memo: dict[int, Any] = {}

    def run(self, stream: io.BytesIO) -> Any:
        """Returns the object on the stack at the end of the pickle."""
        for number, (opcode, argument, place) in enumerate(pickletools.genops(stream)):
            if opcode.name == "STOP":
                break
            if number == _MOST_INSTRUCTIONS:
                raise _RefusedError(f"its pickle has more than {number} instructions: {_REMEDY}")
            self.follow(opcode.name, argument, place)
        (result,) = self.stack
        return result

    def follow(self, instruction: str, argument: Any, place: int | None) -> None:
        stack = self.stack
        if instruction in _CONSTANTS:
            stack.append(_CONSTANTS[instruction])
        elif instruction in _LITERALS:
            stack.append(argument)
        elif instruction in _EMPTY:
            stack.append(_EMPTY[instruction]())
        elif instruction in _TUPLES:
            items = [stack.pop() for _ in range(_TUPLES[instruction])]
            stack.append(tuple(reversed(items)))
        else:
            self.build(instruction, argument, place)

    def build(self, instruction: str, argument: Any, place: int | None) -> None:
        match instruction:
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                self.below.append(self.stack)
                self.stack = []
            case "TUPLE":
                tuple_items = tuple(self.items())
                self.stack.append(tuple_items)
            case "APPEND" | "APPENDS":
                items = self.items() if instruction == "APPENDS" else [self.stack.pop()]
                self.top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.items() if instruction == "SETITEMS" else self.last(2)
                _fill(self.top(dict), items)
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "GLOBAL":
                self.stack.append(_named(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                self.stack.append(_named(".".join(self.last(2))))
            case "BINPERSID":
                self.stack.append(self.storage(self.stack.pop()))
            case "REDUCE":
                called, arguments = self.last(2)
                self.stack.append(_made(called, arguments))
            case "BUILD":  # a dictionary of weights with a version in its attributes
                self.stack.pop()
                self.top(dict)
            case _:
                raise _RefusedError(
                    f"its pickle has the instruction {instruction} at byte {place}, of which "
                    f"tensors need none: {_REMEDY}"
                )

    def items(self) -> list[Any]:
        """Pops the last mark and returns the objects above it."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def last(self, count: int) -> list[Any]:
        """Pops and returns the last objects on the stack."""
        items = [self.stack.pop() for _ in range(count)]
        return items[::-1]

    def top(self, kind: type) -> Any:
        """Returns the last object on the stack; rejects one of another type."""
        if type(self.stack[-1]) is not kind:
            raise _RefusedError(f"its pickle changes {_kind(self.stack[-1])}: {_REMEDY}")
        return self.stack[-1]

    def storage(self, described: Any) -> _Storage:
        """Returns the storage that `torch.save` describes."""
        match described:
            case ("storage", _Name(kind), str() as key, _, int() as size, *view) if (
                kind in _STORAGES and _are_sizes([size]) and view in ([], [None])
            ):
                storage = _Storage(key, _STORAGES[kind], size)
            case _:
                raise _RefusedError(
                    f"its pickle refers to something that is not a storage: {_REMEDY}"
                )
        if self.storages.setdefault(key, storage) != storage:
            raise _RefusedError(
                f"storage {key!r:.100} is described in two ways: the file is damaged"
            )
        return storage


def _named(name: str) -> _Name:
    if name not in _NAMES:
        raise _RefusedError(
            f"its pickle names {name!r:.200}, which tensors do not need and which is not run: "
            f"do not open such a file with torch.load unless you trust it. If you do, {_REMEDY}"
        )
    return _Name(name)


def _fill(target: dict[str, Any], items: list[Any]) -> None:
    for name, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(name, str):
            raise _RefusedError(f"a dictionary in its pickle has {_kind(name)} as a key: {_REMEDY}")
        target[name] = value


def _made(called: Any, arguments: Any) -> Any:
    """Returns our stand-in for the result of a call."""
    name = called.name if isinstance(called, _Name) else None
    match name, arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch.Size", (tuple() as sizes,):
            return sizes
        case ("torch._utils._rebuild_tensor", (_, _, _, _)) | (
            "torch._utils._rebuild_tensor_v2",
            (_, _, _, _, _, _) | (_, _, _, _, _, _, None),
        ):
            return _tensor(*arguments[:4])
        case "torch._utils._rebuild_parameter", (_Tensor() as tensor, _, _):
            return tensor
        case "torch._utils._rebuild_parameter_with_state", (_Tensor() as tensor, _, _, _):
            return tensor
    raise _RefusedError(f"its pickle calls {_kind(called)}, or not as torch.save does: {_REMEDY}")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> _Tensor:
    if (
        not isinstance(storage, _Storage)
        or not isinstance(shape, tuple)
        or not isinstance(strides, tuple)
        or len(shape) != len(strides)
        or not is_possible_shape(shape)
        or not _are_sizes([offset, *strides])
    ):
        raise _RefusedError("a tensor in its pickle has an impossible shape: the file is damaged")
    return _Tensor(storage, offset, shape, strides)


def _are_sizes(values: Sequence[Any]) -> bool:
    return all(type(value) is int and 0 <= value <= _LARGEST_SIZE for value in values)


def _kind(value: Any) -> str:
    """Returns what an object is, in words, without following nested objects."""
    if isinstance(value, _Name):
        return value.name
    return f"a {type(value).__name__.strip('_').lower()}"


def _find(path: Path) -> Path | None:
    if path.is_file():
        if path.name in (_WHOLE, _INDEX):
            return path
        with path.open("rb") as opened:
            start = opened.read(len(_ZIP))
        return path if path.suffix in _ENDS and start.startswith((_ZIP, _PICKLE)) else None
    return next((file for name in (_WHOLE, _INDEX) if (file := path / name).is_file()), None)


CONTAINER = Container(_WHOLE, 9, _find, open_pickle)
