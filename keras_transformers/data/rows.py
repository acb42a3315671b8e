"""Defines the base class of examples in columns."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Self

from keras_transformers.data.faults import Content

__all__: list[str] = []


class Rows:
    """Columns with one value per example, or None; a base class of frozen dataclasses.

    Attributes:
        source: where the examples come from, for messages.
    """

    source: str

    def __len__(self) -> int:
        return len(next(iter(self._columns().values())))

    def select(self, indices: Iterable[int], source: str | None = None) -> Self:
        """Returns the examples at `indices`, in that order."""
        chosen = list(indices)
        columns: dict[str, Any] = {
            name: [values[i] for i in chosen]
            for name, values in self._columns().items()
            if values is not None and len(values)
        }
        itself: Any = self
        return dataclasses.replace(itself, **columns, source=source or self.source)

    def contents(self) -> Iterator[Content]:
        """Yields what each example asks, and its label."""
        return map(self._content, range(len(self)))

    def _content(self, index: int) -> Content:
        raise NotImplementedError

    def _columns(self) -> dict[str, Any]:
        """Returns all attributes but `source`."""
        itself: Any = self
        names = [field.name for field in dataclasses.fields(itself)]
        return {name: getattr(self, name) for name in names if name != "source"}
