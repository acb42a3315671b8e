"""Says where examples come from, in messages."""

import dataclasses
from collections.abc import Sequence

__all__ = ["Source"]


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set in memory, or the rows of a file.

    Attributes:
        name: the argument that has the data, such as "validation"; or the file's path.
        lines: for a file, the line of each row.

    >>> Source("data").row(3), Source("a.jsonl", [1, 2, 4, 5]).row(3)
    ('data, row 3', 'a.jsonl:5')
    """

    name: str
    lines: Sequence[int] | None = None

    def __str__(self) -> str:
        return self.name

    def row(self, number: int) -> str:
        """Returns the place of a row, counted from 0."""
        if self.lines is None:
            return f"{self.name}, row {number}"
        return f"{self.name}:{self.lines[number]}"
