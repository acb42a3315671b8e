"""Reads numbers, texts and arrays from a file in sequence, and never past its end."""

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

__all__: list[str] = []

TRUNCATED = "it may be truncated: download it again"


class MappedFile:
    """Reads little-endian values one after the other; arrays stay in the file until they are used.

    Every size is checked against the bytes that are left, in Python's integers, before anything is
    made of it.

    Attributes:
        file: the file, which must not be empty.
        place: the position of the next value, in bytes.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with file.open("rb") as opened:
            self._bytes = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.place = 0

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self._bytes)

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        """Returns numbers in a format of `struct`."""
        return struct.unpack(f"<{kinds}", self.take(struct.calcsize(f"<{kinds}")))

    def count(self, kind: str, what: str, bytes_each: int) -> int:
        """Returns a count of items of at least this many bytes each, which must fit."""
        (count,) = self.numbers(kind)
        if not 0 <= count * bytes_each <= self.size - self.place:
            raise ValueError(f"{self.file}: {count} {what} do not fit into the file; {TRUNCATED}")
        return int(count)

    def array(self, kind: Any, *shape: int) -> np.ndarray:
        """Returns an array of a NumPy type mapped from the file, without reading it."""
        dtype = np.dtype(kind)
        if min(shape, default=0) < 0:
            raise ValueError(f"{self.file}: a table of {shape} numbers; {TRUNCATED}")
        start, size = self.place, math.prod(shape)
        self.skip(size * dtype.itemsize)
        return np.frombuffer(self._bytes, dtype, size, start).reshape(shape)

    def word(self) -> str:
        """Returns a text that ends with a zero byte."""
        end = self._bytes.find(b"\0", self.place)
        if end < 0:
            raise ValueError(f"{self.file} ends within a word; {TRUNCATED}")
        word = self.text(end - self.place)
        self.place += 1
        return word

    def text(self, size: int) -> str:
        """Returns a text of this many bytes."""
        encoded = self.take(size)
        try:
            return encoded.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.file}: the text {encoded[:100]!r:.100} at byte {self.place - size} is not "
                "UTF-8, which is not supported"
            ) from error

    def take(self, size: int) -> bytes:
        """Returns the next bytes."""
        start = self.place
        self.skip(size)
        return self._bytes[start : self.place]

    def skip(self, size: int) -> None:
        """Moves on by this many bytes; ValueError if the file has fewer."""
        if size > self.size - self.place:
            raise ValueError(
                f"{self.file} has {self.size} bytes, expected {size} after the first "
                f"{self.place}; {TRUNCATED}"
            )
        self.place += size
