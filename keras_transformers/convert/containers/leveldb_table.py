"""Reads the values in LevelDB's tables, such as the index of a TensorFlow checkpoint.

A table has blocks of entries, a block that lists them, and a footer that says where that block is:
leveldb, doc/table_format.md.
"""

import struct
from collections.abc import Iterator

__all__: list[str] = []

_FOOTER_SIZE, _MAGIC = 48, struct.pack("<Q", 0xDB4775248B80FB57)
_MOST_SHIFT = 63  # of the bits in a number of variable length


def table_values(table: bytes) -> Iterator[bytes]:
    """Yields the values of a table in the order of their keys.

    Raises:
        ValueError: the table is damaged.
    """
    try:
        yield from _values(table)
    except (IndexError, struct.error) as error:
        raise ValueError(f"its index ends within a block ({error})") from error


def _values(table: bytes) -> Iterator[bytes]:
    footer = table[-_FOOTER_SIZE:]
    if not footer.endswith(_MAGIC):
        raise ValueError("its index has no footer")
    _, _, start = _handle(footer, 0)
    start, size, _ = _handle(footer, start)
    left = len(table)  # blocks do not overlap
    for handle in _entries(_block(table, start, size)):
        start, size, _ = _handle(handle, 0)
        left -= size
        if left < 0:
            raise ValueError("the blocks of its index overlap")
        yield from _entries(_block(table, start, size))


def _block(table: bytes, start: int, size: int) -> bytes:
    if start + size >= len(table):
        raise ValueError(f"its index has {len(table)} bytes, and a block at {start} of {size}")
    if table[start + size]:  # the byte after a block
        raise ValueError("its index is compressed, which TensorFlow does not do")
    return table[start : start + size]


def _entries(block: bytes) -> Iterator[bytes]:
    """Yields the values in a block."""
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end, place = len(block) - 4 * (num_restarts + 1), 0
    while place < end:
        _, place = _number(block, place)  # the bytes that a key shares with the one before
        key_size, place = _number(block, place)
        size, place = _number(block, place)
        place += key_size + size
        yield block[place - size : place]


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
