"""Reads GGUF, llama.cpp's files: weights, quantized or not, configuration and vocabulary.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; llama.cpp, convert_hf_to_gguf.py.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, is_possible_shape
from keras_transformers.convert.containers.mapped import TRUNCATED, MappedFile
from keras_transformers.convert.memory import new_array
from keras_transformers.dependencies.extras import optional
from keras_transformers.files.errors import short_repr

__all__: list[str] = []

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32  # bytes, of the first tensor, if no field says otherwise
# Types of values in the metadata.
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?"}
_NUMBERS |= {10: "<u8", 11: "<i8", 12: "<f8"}
_TEXT, _ARRAY = 8, 9
_TEXT_SIZE = 8  # bytes, of an empty text
_SMALLEST_FIELD, _SMALLEST_TENSOR = 13, 32  # bytes
_MOST_NAMES = 2**16  # fields or tensors; files have a few hundred
# In all arrays of the metadata. The largest vocabularies, with 262,144 tokens, have their types,
# scores and 520,000 merges.
_MOST_VALUES = 2**22
_MOST_AXES = 4  # ggml's
_VALUES_AT_ONCE = 2**16  # that are dequantized, so that what comes in between stays in the cache
_ROTARY_FACTORS = "rope_freqs.weight"  # belongs to no module; `rotary_factors` reads it
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)")


@dataclass(frozen=True)
class GgufMap:
    """Maps a family's models in llama.cpp's files to Hugging Face's.

    Attributes:
        modules: module there -> Hugging Face's.
        block: Hugging Face's name of a block, without its number.
        parts: module in a block there -> Hugging Face's.
        open: takes the file, its arrays under Hugging Face's names, and the family; returns the
            weights found.
        is_rotary: whether files may have factors of rotary positions.
        architecture: llama.cpp's name of the family, if it is not the family's `model_type`.
        reordered: part of a block -> the field with its number of heads. llama.cpp rotates
            neighbouring numbers of a head together, Hugging Face's classes those of its two halves;
            the converter reorders these matrices.
    """

    modules: Mapping[str, str]
    block: str
    parts: Mapping[str, str]
    open: Callable[..., Any]
    is_rotary: bool = False
    architecture: str = ""
    reordered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in a GGUF file.

    Attributes:
        name: llama.cpp's name.
        kind: its number type or quantization, a `gguf.GGMLQuantizationType`.
        shape: as in PyTorch; llama.cpp's order is the reverse.
        data: its bytes, mapped from the file, in rows.
    """

    name: str
    kind: Any
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True)
class Gguf:
    """A GGUF file.

    Attributes:
        file: the file.
        fields: name -> value of the metadata; an array is a list.
        tensors: name -> tensor, whose values stay in the file until they are read.
    """

    file: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """The family's name in llama.cpp."""
        return str(self.fields.get("general.architecture", ""))

    @classmethod
    def open(cls, file: Path) -> "Gguf":
        """Reads the metadata, and where the tensors are.

        Counts and sizes are checked by what the file can hold, and by the largest vocabularies,
        before anything is made of them: llama.cpp's own package makes an object per number.

        Raises:
            ValueError: the file is damaged, or of another version or byte order.
        """
        reader = MappedFile(file)
        magic, version = reader.numbers("4sI")
        if magic != _MAGIC or version not in _VERSIONS:
            raise ValueError(
                f"{file}: version {version} of GGUF; expected one of {_VERSIONS}, little-endian: "
                "convert the model again"
            )
        num_tensors = _count(reader, "tensors", _SMALLEST_TENSOR)
        num_fields = _count(reader, "fields", _SMALLEST_FIELD)
        fields = _fields(reader, num_fields)
        alignment = fields.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"{file}: general.alignment={short_repr(alignment)}; {TRUNCATED}")
        described = [_described_tensor(reader) for _ in range(num_tensors)]
        start = -(-reader.place // alignment) * alignment
        tensors = {
            name: _tensor(reader, name, shape, kind, start + offset)
            for name, shape, kind, offset in described
        }
        if len(tensors) < num_tensors:
            raise ValueError(f"{file}: two of its tensors have the same name; {TRUNCATED}")
        return cls(file, fields, tensors)

    def number(self, name: str, kind: type, default: Any = None) -> Any:
        """Returns a number from the metadata; ValueError if it is anything else."""
        value = self.fields.get(name, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{self.file}: {name}={value!r:.100}; expected a number, 0 or more")
        return kind(value)

    def arrays(self, gguf: GgufMap) -> Arrays:
        """Returns the weights as float32, under Hugging Face's names.

        Raises:
            ValueError: the file has a tensor that the family lacks.
        """
        names = {
            self._name(name, gguf): tensor
            for name, tensor in self.tensors.items()
            if not (gguf.is_rotary and name == _ROTARY_FACTORS)
        }
        shapes = {name: tensor.shape for name, tensor in names.items()}
        lent = np.empty(0, np.float32)

        def read(name: str, memory: np.ndarray | None = None) -> np.ndarray:
            tensor = names[name]
            return self._in_halves(tensor.name, self._dequantized(tensor, memory), gguf)

        def lend(name: str) -> np.ndarray:
            nonlocal lent
            size = math.prod(shapes[name])
            if size > lent.size:
                lent = new_array((size,), np.float32)
            array = read(name, lent[:size])
            array.flags.writeable = False
            return array

        return Arrays(self.file, shapes, read, lend=lend)

    def rotary_factors(self) -> np.ndarray | None:
        """Returns the divisors for the rates of rotary positions, (head_dim / 2,), if given.

        Files contain the scaling of Llama 3.1 only as these numbers.
        """
        tensor = self.tensors.get(_ROTARY_FACTORS)
        if tensor is None:
            return None
        if tensor.kind.name != "F32":
            raise ValueError(
                f"{self.file}: {_ROTARY_FACTORS} is of type {tensor.kind.name}; expected F32"
            )
        return self._dequantized(tensor).reshape(-1)

    def _dequantized(self, tensor: GgufTensor, memory: np.ndarray | None = None) -> np.ndarray:
        """Returns a tensor's values as float32.

        Args:
            tensor: the tensor.
            memory: float32, which becomes the array's; new memory by default.
        """
        package = optional("gguf", extra="gguf")
        values_per_block, bytes_per_block = package.GGML_QUANT_SIZES[tensor.kind]
        values = new_array((math.prod(tensor.shape),), np.float32) if memory is None else memory
        blocks = tensor.data.reshape(-1)  # they follow each other, whatever the shape
        most = max(1, _VALUES_AT_ONCE // values_per_block)
        for start in range(0, len(values) // values_per_block, most):
            part = blocks[start * bytes_per_block : (start + most) * bytes_per_block]
            try:
                some = package.dequantize(part, tensor.kind)
            except (NotImplementedError, ValueError) as error:
                raise ValueError(
                    f"{self.file}: {tensor.name} has the unsupported type {tensor.kind.name} "
                    f"({error})"
                ) from error
            values[start * values_per_block :][: len(some)] = some
        return values.reshape(tensor.shape)

    def _in_halves(self, name: str, array: np.ndarray, gguf: GgufMap) -> np.ndarray:
        """Returns a matrix or bias of queries or keys in Hugging Face's order, and others as is."""
        block = _BLOCK.fullmatch(name.rpartition(".")[0])
        field = gguf.reordered.get(block[2] if block else "")
        if field is None:
            return array
        default = self.fields.get(f"{self.architecture}.attention.head_count")
        heads = self.fields.get(f"{self.architecture}.{field}", default)
        if type(heads) is not int or heads < 1 or len(array) % (2 * heads):
            raise ValueError(
                f"{self.file}: {self.architecture}.{field}={heads!r:.100}, but {name} has "
                f"{len(array)} rows: each head needs the same even number of rows"
            )
        pairs = array.reshape(heads, -1, 2, *array.shape[1:])  # (heads, head_dim / 2, 2, ...)
        return pairs.swapaxes(1, 2).reshape(array.shape)

    def _name(self, name: str, gguf: GgufMap) -> str:
        module, _, last = name.rpartition(".")
        block = _BLOCK.fullmatch(module)
        theirs = (gguf.parts if block else gguf.modules).get(block[2] if block else module)
        if theirs is None or last not in ("weight", "bias"):
            raise ValueError(
                f"{self.file}: unexpected tensor {name!r:.100} for {self.architecture}: get the "
                "model.safetensors that it was made from"
            )
        return f"{gguf.block}.{block[1]}.{theirs}.{last}" if block else f"{theirs}.{last}"


def _count(reader: MappedFile, what: str, bytes_each: int) -> int:
    count = reader.count("Q", what, bytes_each)
    if count > _MOST_NAMES:
        raise ValueError(f"{reader.file}: {count} {what}; expected at most {_MOST_NAMES}")
    return count


def _fields(reader: MappedFile, count: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    num_values = 0
    for _ in range(count):
        name = _text(reader)
        if name in fields:
            raise ValueError(f"{reader.file}: two fields are {name!r:.100}; {TRUNCATED}")
        fields[name] = value = _value(reader, name, most=_MOST_VALUES - num_values)
        num_values += len(value) if isinstance(value, list) else 0
    return fields


def _value(reader: MappedFile, name: str, most: int) -> Any:
    """Reads the value of a field: a number, a text, or a list of at most so many of them."""
    (kind,) = reader.numbers("I")
    if kind != _ARRAY:
        return _values(reader, name, kind, 1)[0]
    (kind,) = reader.numbers("I")
    size = _TEXT_SIZE if kind == _TEXT else np.dtype(_NUMBERS.get(kind, "u1")).itemsize
    count = reader.count("Q", f"values of {name!r:.100}", size)
    if count > most:
        raise ValueError(
            f"{reader.file}: {name!r:.100} has {count} values; expected at most {_MOST_VALUES} in "
            f"all fields; {TRUNCATED}"
        )
    return _values(reader, name, kind, count)


def _values(reader: MappedFile, name: str, kind: int, count: int) -> list[Any]:
    if kind == _TEXT:
        return [_text(reader) for _ in range(count)]
    if kind not in _NUMBERS:
        raise ValueError(f"{reader.file}: {name!r:.100} is of the unknown type {kind}; {TRUNCATED}")
    return reader.array(_NUMBERS[kind], count).tolist()


def _text(reader: MappedFile) -> str:
    return reader.text(reader.count("Q", "bytes of text", 1))


def _described_tensor(reader: MappedFile) -> tuple[str, tuple[int, ...], int, int]:
    """Reads a tensor's name, shape in PyTorch's order, type, and offset in bytes."""
    name = _text(reader)
    (rank,) = reader.numbers("I")
    if not 1 <= rank <= _MOST_AXES:
        raise ValueError(f"{reader.file}: {name!r:.100} has {rank} axes; {TRUNCATED}")
    shape = reader.numbers(f"{rank}Q")[::-1]
    return name, shape, *reader.numbers("IQ")


def _tensor(
    reader: MappedFile, name: str, shape: tuple[int, ...], kind: int, start: int
) -> GgufTensor:
    package = optional("gguf", extra="gguf")
    place = f"{reader.file}: {name!r:.100} of shape {shape}"
    try:
        quantization = package.GGMLQuantizationType(kind)
    except ValueError as error:
        raise ValueError(f"{place} has the unknown type {kind}; {TRUNCATED}") from error
    values_per_block, bytes_per_block = package.GGML_QUANT_SIZES[quantization]
    rows = (*shape[:-1], shape[-1] // values_per_block * bytes_per_block)
    fits = start + math.prod(rows) <= reader.size
    if shape[-1] % values_per_block or not is_possible_shape(rows) or not fits:
        raise ValueError(
            f"{place} and type {quantization.name} does not lie within the {reader.size} bytes of "
            f"the file, at byte {start}; {TRUNCATED}"
        )
    reader.place = start
    return GgufTensor(name, quantization, shape, reader.array("u1", *rows))


def find_gguf(path: Path) -> Path | None:
    """Returns the GGUF file at a path: the file itself, or the only one in a folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(files) != 1:
        return None
    with files[0].open("rb") as opened:
        return files[0] if opened.read(len(_MAGIC)) == _MAGIC else None
