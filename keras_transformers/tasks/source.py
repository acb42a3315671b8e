"""Says where examples come from, in messages."""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

__all__ = ["Source"]


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set in memory, or the rows of a file.

    Attributes:
        name: the argument that has the data, such as "validation"; or the file's path.
        lines: for a file, the line of each row.
        names: the names of rows in memory, such as a frame's index; their numbers by default.

    >>> Source("data").row(3), Source("a.jsonl", [1, 2, 4, 5]).row(3)
    ('data, row 3', 'a.jsonl:5')
    """

    name: str
    lines: Sequence[int] | None = None
    names: Sequence[Any] | None = None

    def __str__(self) -> str:
        return self.name

    def row(self, number: int) -> str:
        """Returns the place of a row, counted from 0."""
        if self.lines is None:
            name = number if self.names is None else self.names[number]
            return f"{self.name}, row {name}"
        return f"{self.name}:{self.lines[number]}"

    def without(self, rows: Container[int], count: int) -> "Source":
        """Returns the source without some of its `count` rows; the others keep their places."""
        left = [row for row in range(count) if row not in rows]
        if self.lines is not None:
            return Source(self.name, [self.lines[row] for row in left])
        names = range(count) if self.names is None else self.names
        return Source(self.name, names=[names[row] for row in left])
