"""Writes the index of a TensorFlow checkpoint with any contents, and right checksums."""

import struct
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

NAME = b"bert/embeddings/word_embeddings"
NUM_BYTES = 16


def tensor(*sizes: int, kind: str = "DT_FLOAT") -> bytes:
    """The entry of a tensor in the first 16 bytes, which are zeros."""
    entry: Any = tensor_bundle_pb2.BundleEntryProto(
        dtype=types_pb2.DataType.Value(kind), size=NUM_BYTES, crc32c=_checksum(bytes(NUM_BYTES))
    )
    for size in sizes:
        entry.shape.dim.add(size=size)
    written: bytes = entry.SerializeToString()
    return written


def write_index(entry: bytes) -> bytes:
    """The index of a checkpoint with one tensor; its data is one file."""
    header: Any = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    header.version.producer = 1
    table = b""

    def written(contents: dict[bytes, bytes]) -> bytes:
        nonlocal table
        entries = b"".join(
            b"\0" + _number(len(key)) + _number(len(value)) + key + value
            for key, value in contents.items()
        )
        block = entries + struct.pack("<II", 0, 1)
        handle = _number(len(table)) + _number(len(block))
        table += block + b"\0" + struct.pack("<I", _checksum(block + b"\0"))
        return handle

    data = written({b"": header.SerializeToString(), NAME: entry})
    meta = written({})
    index = written({NAME + b"\xff": data})
    return table + (meta + index).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def _number(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _checksum(data: bytes) -> int:
    """LevelDB's masked CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF
