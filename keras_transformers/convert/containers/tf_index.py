"""Checks the index of a TensorFlow checkpoint before TensorFlow reads it.

TensorFlow ends the whole process for a shape that no tensor can have, and makes an object per
string before it compares their count with the file.

An index is one of LevelDB's tables (leveldb, doc/table_format.md): blocks of entries; a block that
lists the blocks; and a footer that says where that block is. Entries are BundleEntryProto.
"""

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_transformers.convert.containers.arrays import is_possible_shape
from keras_transformers.files.errors import short_repr

__all__: list[str] = []

_FOOTER_SIZE, _MAGIC = 48, struct.pack("<Q", 0xDB4775248B80FB57)
_MOST_SHIFT = 63  # of the bits in a number of variable length


def check_index(index: Path, num_bytes: int | None) -> None:
    """Checks the shapes of the tensors in a checkpoint.

    Args:
        index: the file PREFIX.index.
        num_bytes: the size of the tensors' files, in which each takes at least one byte per
            element; None if they are missing.

    Raises:
        ValueError: the index is damaged, or a tensor has an impossible shape or does not fit.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import tensor_bundle_pb2

    proto: Any = tensor_bundle_pb2  # created at run time, without types
    try:
        for value in _values(index.read_bytes()):
            shape = tuple(axis.size for axis in proto.BundleEntryProto.FromString(value).shape.dim)
            most = math.inf if num_bytes is None else num_bytes
            if not is_possible_shape(shape) or math.prod(shape) > most:
                raise ValueError(
                    f"a tensor of shape {short_repr(shape)} in files of {num_bytes} bytes"
                )
    except (IndexError, struct.error, DecodeError) as error:
        raise ValueError(f"its index is damaged: {error}") from error


def _values(table: bytes) -> Iterator[bytes]:
    """Yields the values of a table, except that of the empty key, which is a header."""
    footer = table[-_FOOTER_SIZE:]
    if not footer.endswith(_MAGIC):
        raise ValueError("its index has no footer")
    _, _, start = _handle(footer, 0)
    start, size, _ = _handle(footer, start)
    left = len(table)  # blocks do not overlap
    for _, handle in _entries(_block(table, start, size)):
        start, size, _ = _handle(handle, 0)
        left -= size
        if left < 0:
            raise ValueError("the blocks of its index overlap")
        for has_key, value in _entries(_block(table, start, size)):
            if has_key:
                yield value


def _block(table: bytes, start: int, size: int) -> bytes:
    if start + size >= len(table):
        raise ValueError(f"its index has {len(table)} bytes, and a block at {start} of {size}")
    if table[start + size]:  # the byte after a block
        raise ValueError("its index is compressed, which TensorFlow does not do")
    return table[start : start + size]


def _entries(block: bytes) -> Iterator[tuple[bool, bytes]]:
    """Yields whether a key is not empty, and its value."""
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end, place = len(block) - 4 * (num_restarts + 1), 0
    while place < end:
        shared, place = _number(block, place)
        own, place = _number(block, place)
        size, place = _number(block, place)
        place += own + size
        yield shared + own > 0, block[place - size : place]


def _handle(data: bytes, place: int) -> tuple[int, int, int]:
    """Returns the start and the size of a block, and the place after them."""
    start, place = _number(data, place)
    size, place = _number(data, place)
    return start, size, place


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Returns a number of variable length, and the place after it."""
    number = 0
    for shift in range(0, _MOST_SHIFT + 1, 7):
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("its index has a number of more than 64 bits")
