"""Reads columns of labels: as names, as indices into a pipeline's labels, or as indicators."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.source import Source

__all__ = ["LabelColumn"]

LabelsAre = Literal["names", "indices", "indicators"]

_NUMBER = re.compile(r"[-+]?\d{1,15}(\.\d{1,15})?")
_INDEX = re.compile(r"\d{1,9}(\.0+)?")
_NUM_SHOWN = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelColumn:
    """The column of a task's labels, which is read one way in all of its data sets.

    Numbers may be names, or indices from 0; strings and booleans are names. If a cell is a set of
    labels, it may also be indicators: a 0 or 1 for each of the pipeline's labels.

    Attributes:
        name: the column's name, as `tables.in_memory.Wanted.name`.
        labels: takes the pipeline; returns its labels.
        cells: a cell is one label, a list with a label for each word, or a list with any number of
            labels, each once.
    """

    name: str = "label"
    labels: Callable[[Any], Sequence[str]] = lambda pipeline: pipeline.labels
    cells: Literal["one", "words", "set"] = "one"

    def as_names(
        self,
        pipeline: Pipeline,
        columns: Sequence[tuple[Source, Sequence[Any]]],
        labels_are: LabelsAre | None = None,
    ) -> list[list[Any]]:
        """Returns the names in each of the columns: a string per cell, or a list of strings.

        Args:
            pipeline: a pipeline with labels.
            columns: the column of each data set, with where it comes from.
            labels_are: the way to read them; None takes the only way that fits all columns, or
                ways that agree.

        Raises:
            ValueError: a label is unknown; or several ways fit and differ. The message has a row
                and the remedy.

        Example:
            >>> column = LabelColumn(labels=lambda pipeline: ["bad", "good"])
            >>> column.as_names(None, [(Source("data"), [1, 0])])
            [['good', 'bad']]
        """
        labels = list(self.labels(pipeline))
        ways = ("names", "indices") if self.cells != "set" else ("names", "indices", "indicators")
        if labels_are is not None and labels_are not in ways:
            raise ValueError(f"labels_are={labels_are!r}: use one of {', '.join(ways)}")
        candidates = ways if labels_are is None else (labels_are,)
        reader = _Reader(labels, self.cells, stated=labels_are is not None)
        read: dict[str, list[list[Any]]] = {}
        misfits: dict[str, _MisfitError] = {}
        for way in candidates:
            try:
                read[way] = [reader.column(way, *column) for column in columns]
            except _MisfitError as misfit:
                misfits[way] = misfit
        if not read:
            raise ValueError(_why_none(reader, misfits))
        (first, names), *others = read.items()
        for way, other in others:
            if other != names:
                place, value, one, two = _first_difference(columns, names, other)
                raise ValueError(
                    f"{place}: the label {value!r:.60} is {one!r:.60} if labels are {first}, but "
                    f"{two!r:.60} if they are {way}, and all {sum(len(c) for _, c in columns)} "
                    f"labels can be either: pass labels_are={first!r} or labels_are={way!r}"
                )
        return names


class _MisfitError(Exception):
    """A cell that cannot be read in one way.

    Attributes:
        place: the data set and the row.
        value: the label in the cell that does not fit, or the cell.
        column: the whole column.
        is_cell: whether the cell is a list where it should not be, or the reverse.
    """

    def __init__(
        self, place: str, value: Any, column: Sequence[Any], *, is_cell: bool = False
    ) -> None:
        super().__init__(place)
        self.place, self.value, self.column, self.is_cell = place, value, column, is_cell


class _Reader:
    """Reads columns in one way or another.

    Args:
        labels: the pipeline's labels.
        cells: see `LabelColumn`.
        stated: whether the user stated the way, so that strings may be indices too.
    """

    def __init__(self, labels: list[str], cells: str, *, stated: bool) -> None:
        self.labels, self.cells, self._stated = labels, cells, stated
        self._names = {label: label for label in labels}
        self._numbers: dict[float, str] = {}
        for label in filter(_NUMBER.fullmatch, labels):
            self._numbers.setdefault(float(label), label)

    @property
    def shown(self) -> str:
        """The labels that fit, for messages."""
        names = ", ".join(self.labels[:_NUM_SHOWN])
        more = ", ..." if len(self.labels) > _NUM_SHOWN else ""
        return f"{names}{more}, or their indices 0 to {len(self.labels) - 1}"

    def knows(self, value: Any) -> bool:
        """Returns whether a label is a name or an index."""
        return self._name(value) is not None or self._at(value) is not None

    def column(self, way: str, source: Source, column: Sequence[Any]) -> list[Any]:
        """Returns the names in a column; raises _MisfitError for the first cell that misfits."""
        if way == "indicators":
            return [self._indicated(source.row(i), cell, column) for i, cell in enumerate(column)]
        read = self._name
        if way == "indices" and (self._stated or not _are_strings(column)):
            read = self._at
        cells: list[Any] = []
        for row, cell in enumerate(column):
            is_list = isinstance(cell, list | tuple)
            if is_list != (self.cells != "one"):
                raise _MisfitError(source.row(row), cell, column, is_cell=True)
            names = [read(value) for value in (cell if is_list else [cell])]
            if None in names:
                value = cell[names.index(None)] if is_list else cell
                raise _MisfitError(source.row(row), value, column)
            if self.cells == "set" and not self._stated and len(set(names)) < len(names):
                raise _MisfitError(source.row(row), cell, column)
            cells.append(names if is_list else names[0])
        return cells

    def _name(self, value: Any) -> str | None:
        if isinstance(value, str):
            return self._names.get(value.strip())
        if isinstance(value, bool):  # JSON spells true, Python True
            return self._names.get(str(value), self._names.get(str(value).lower()))
        if isinstance(value, int | float):
            return self._names.get(str(value), self._numbers.get(value))
        return None

    def _at(self, value: Any) -> str | None:
        if isinstance(value, str) and self._stated and _INDEX.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, float) and value.is_integer():  # as pandas writes whole numbers
            value = int(value)
        fits = isinstance(value, int) and not isinstance(value, bool)
        return self.labels[value] if fits and 0 <= value < len(self.labels) else None

    def _indicated(self, place: str, cell: Any, column: Sequence[Any]) -> list[str]:
        is_list = isinstance(cell, list | tuple) and len(cell) == len(self.labels)
        if not is_list or not all(isinstance(x, int | float) and x in (0, 1) for x in cell):
            raise _MisfitError(place, cell, column)
        return [label for label, has in zip(self.labels, cell, strict=True) if has]


def _are_strings(column: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in _flat(column))


def _flat(column: Sequence[Any]) -> Iterator[Any]:
    for cell in column:
        yield from cell if isinstance(cell, list | tuple) else [cell]


def _first_difference(
    columns: Sequence[tuple[Source, Sequence[Any]]], one: list[Any], other: list[Any]
) -> tuple[str, Any, Any, Any]:
    """Returns the place, the cell and its readings, of the first cell that is read differently."""
    for (source, column), first, second in zip(columns, one, other, strict=True):
        for row, cell in enumerate(column):
            if first[row] != second[row]:
                return source.row(row), cell, first[row], second[row]
    raise AssertionError("the readings agree")


def _why_none(reader: "_Reader", misfits: Mapping[str, _MisfitError]) -> str:
    """Returns why no way reads all columns, with the remedy."""
    unknown = [x for x in misfits.values() if x.is_cell or not reader.knows(x.value)]
    if not unknown and len(misfits) == 1:
        ((way, misfit),) = misfits.items()
        return (
            f"{misfit.place}: unknown label {misfit.value!r:.60}: it is not among the {way}, as "
            f"labels_are={way!r} states; the pipeline's labels are {reader.shown}"
        )
    if not unknown:  # each of these labels fits one way, but not all labels fit the same
        cells = "; ".join(
            f"{misfit.place}: {misfit.value!r:.60} is not among the {way}"
            for way, misfit in misfits.items()
        )
        return f"the labels are of several kinds ({cells}): write all as names"
    misfit = unknown[0]
    return (
        f"{misfit.place}: unknown label {misfit.value!r:.60}: the pipeline's labels are "
        f"{reader.shown}{_remedy(reader.labels, reader.cells, misfit)}"
    )


def _remedy(labels: Sequence[str], cells: str, misfit: _MisfitError) -> str:
    """Returns what to do about a label that does not fit."""
    value, count = misfit.value, len(labels)
    if isinstance(value, list | tuple):
        return _remedy_for_list(value, count, cells)
    if misfit.is_cell:
        wanted = "one label per word" if cells == "words" else "any number of labels"
        return f": pass a list with {wanted} in each row"
    if isinstance(value, bool):
        return ": pass labels.astype(int) if False and True are the first two, or names"
    if isinstance(value, str):
        if _INDEX.fullmatch(value.strip()) and float(value) < count:
            return ": pass integers, as from labels.astype(int), or labels_are='indices'"
        return "; load it with labels=[...] for others"
    if not isinstance(value, int | float):
        return f": pass strings or integers, not {type(value).__name__}"
    if value == -100:
        what = "words" if cells == "words" else "rows"
        return f": -100 marks what a loss leaves out, so drop these {what}"
    numbers = {x for x in _flat(misfit.column) if isinstance(x, int | float)}
    if value == -1 and numbers == {-1, 1} and count == 2:
        return ": pass (labels + 1) // 2 for the indices 0 and 1"
    if value == -1:
        return ": -1 marks a row without a label, so drop these rows"
    if value == count and min(numbers) >= 1:
        return ": indices start at 0, so pass labels - 1"
    if isinstance(value, float) and math.isfinite(value):
        return ": a score is for a pipeline loaded with pipeline='regression'"
    return "; load it with labels=[...] for others"


def check_one_per_row(name: str, values: Sequence[Any], source: Source) -> None:
    """Raises BadRowsError if cells of a column are lists, such as the rows of a matrix."""
    reasons = {
        row: f"{name} is {value!r:.60}{_remedy_for_list(value, len(value), 'one')}"
        for row, value in enumerate(values)
        if isinstance(value, list | tuple)
    }
    check_rows(str(source), reasons)


def _remedy_for_list(cell: Sequence[Any], count: int, cells: str) -> str:
    if cells == "set":
        if len(set(map(str, cell))) < len(cell):
            return ": pass each label of a row once, or a 0 or 1 for each of them"
        return ""
    if len(cell) == 1:
        return ": pass one value per row, as from labels.reshape(-1) or numpy.squeeze(labels, -1)"
    if len(cell) == count and all(isinstance(x, int | float) for x in cell):
        return ": for one-hot rows or probabilities, pass labels.argmax(axis=-1)"
    if cells == "words":
        return ": pass one label per word"
    return ": for several labels per row, load it with pipeline='multi_label_classification'"
