"""Selects the columns of a table, detects whether it has a header, and checks both."""

import dataclasses
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from keras_transformers.data.bad_rows import each_row
from keras_transformers.data.tables.reading import FileFormat, file_format, read_objects, read_table

Column = str | int
Header = Literal["auto", "present", "absent"]
Row = tuple[int, list[str]]  # (line number, cells)

# Column names in public files (GLUE, SICK, PyPI's) and common ones. A first row only counts as a
# header if every cell that we read from it is one of them.
# fmt: off
_TEXT_NAMES = frozenset({
    "text", "text_a", "text_b", "sentence", "sentence1", "sentence2", "sentence_a", "sentence_b",
    "question", "question1", "question2", "premise", "hypothesis", "review", "source1", "source2",
    "#1 string", "#2 string", "tweet", "content", "comment", "message", "review_text", "texts",
})
_LABEL_NAMES = frozenset({
    "label", "labels", "gold_label", "quality", "is_duplicate", "score", "class", "category",
    "sentiment", "target", "relatedness_score", "entailment_judgment", "emotion", "topic", "intent",
    "label_text",
})
# fmt: on
_ID_NAMES = frozenset({"", "id", "idx", "index", "guid", "uid", "unnamed: 0", "row"})
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
_NUM_EXAMINED = 1000  # rows
_MANY = 10  # rows, which do not all have distinct labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The columns to read.

    Attributes:
        texts: the columns of texts: header names, JSON keys, or indices from 0; -1 is the last.
        label: the column of labels; None reads none.
        weight: the column of the examples' weights; None reads none.
        header: whether the first row names the columns. "auto" decides that it does if a column is
            given by name, or if all cells read from that row are usual column names.
        labels: the labels that may occur, which are not a header; None: unknown.
    """

    texts: Sequence[Column]
    label: Column | None = None
    weight: Column | None = None
    header: Header = "auto"
    labels: Sequence[str] | None = None

    @property
    def all(self) -> list[Column]:
        """The columns of texts, of weights and of labels."""
        others = (self.weight, self.label)
        return [*self.texts, *(column for column in others if column is not None)]

    @property
    def kinds(self) -> list[str]:
        """What each of `all` holds: "text", "weight" or "label"."""
        kinds = {"weight": self.weight, "label": self.label}
        others = [kind for kind, column in kinds.items() if column is not None]
        return ["text"] * len(self.texts) + others


class ColumnsError(ValueError):
    """The columns of a file are not the ones to read, or it is unclear which they are.

    Attributes:
        reason: what is wrong, with the file and the line.
        columns: the columns that fit, "text" and possibly "label" -> name or index; may be empty.
        may_be_names: whether `columns` are in the first row, which may also be an example.
    """

    def __init__(
        self, reason: str, columns: Mapping[str, Column], *, may_be_names: bool = False
    ) -> None:
        remedy = _arguments(columns) or "the columns of texts and labels"
        if may_be_names and "label" not in columns:
            remedy = f"{remedy}, or header='absent' if it is an example"
        elif may_be_names:
            remedy = (
                "header='present' if the row names the columns, header='absent' if it is an example"
            )
        super().__init__(f"{reason}: pass {remedy}")
        self.reason, self.columns, self.may_be_names = reason, columns, may_be_names


def read_columns(
    path: str | Path,
    choice: Choice,
    *,
    format: FileFormat | None = None,
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> Iterator[Row]:
    """Yields (line, cells of the chosen columns) for each row below the header.

    Columns are checked by the first 1000 rows. With labels all rows are read before the first is
    yielded, to find out whether that is a header.

    Args:
        path: the file, plain or compressed.
        choice: the columns; for JSON Lines, names.
        format: None infers it from the file's name.
        delimiter: see `reading.read_table`.
        encoding: see `files.read_lines`.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: Parquet or `.zst` needs the extra `data`.
        ColumnsError: a column that was chosen by its index has no texts or labels in it; or it is
            unclear whether the first row is a header. The message names the columns that fit.
        ValueError: a column does not exist, or a row is invalid; the message has file and line.
    """
    format = format or file_format(path)
    if format == "jsonl" or format == "parquet":
        yield from _object_rows(path, choice, format, encoding)
        return
    table = read_table(path, format=format, delimiter=delimiter, encoding=encoding)
    head = list(itertools.islice(table, _NUM_EXAMINED))
    if not head:
        return
    positions = [_position(path, head, column) for column in choice.all]
    names = [column for column in choice.all if isinstance(column, str)]
    if names and choice.header == "absent":
        raise ValueError(f"{path}: header='absent', but the columns {names} are given by name")
    _check_columns(path, [cells for _, cells in head], choice, positions)
    rows: Iterable[Row] = (
        (number, [cells[at] for at in positions]) for number, cells in itertools.chain(head, table)
    )
    first = [_plain(head[0][1][at]) for at in positions]
    has_names = all(name in _TEXT_NAMES | _LABEL_NAMES | {"weight"} for name in first)
    is_header = bool(names) or choice.header == "present" or (choice.header == "auto" and has_names)
    if choice.label is None and not is_header and choice.header == "auto":
        _check_has_no_header(path, [cells for _, cells in head], positions)
    if choice.label is not None:
        rows = list(rows)
        if is_header and not names and not has_names:
            _check_is_header(path, rows)
        if not is_header and (choice.header == "auto" or has_names):
            _check_is_example(path, head[0], rows, choice.labels)
    yield from itertools.islice(rows, is_header, None)


def _position(path: str | Path, table: Sequence[Row], column: Column) -> int:
    names = table[0][1]
    if isinstance(column, str):
        if names.count(column) != 1:
            count = names.count(column)
            raise ValueError(f"{path}:1: {count} columns named {column!r} among {list(names)}")
        return names.index(column)
    if not -len(names) <= column < len(names):
        trouble = f"no column {column} of 0 to {len(names) - 1}"
        if len(names) == 1:
            trouble += (
                f": the first row is one cell, {names[0]!r:.60}; pass delimiter=... if it is "
                "neither comma, semicolon, tab nor bar, or if a .tsv or .txt file has no tabs"
            )
        raise ValueError(f"{path}:1: {trouble}")
    return column % len(names)


def _check_has_no_header(
    path: str | Path, table: Sequence[list[str]], positions: Sequence[int]
) -> None:
    """Raises ValueError if the first row may be a header, because it has a name over numbers."""
    columns = [column for _, *column in zip(*table, strict=True)]
    has_numbers = any(column and all(map(_NUMBER.fullmatch, column)) for column in columns)
    if has_numbers and _may_be_names(table[0]):
        name = table[0][positions[0]]
        reason = f"{path}:1: the first row may name the columns"
        raise ColumnsError(reason, {"text": name}, may_be_names=True)


def _check_is_header(path: str | Path, rows: Sequence[Row]) -> None:
    label = rows[0][1][-1]
    if any(cells[-1] == label for _, cells in rows[1:]):
        raise ValueError(
            f"{path}:{rows[0][0]}: given as a header, but other rows also have its label "
            f"{label!r}: use header='absent'"
        )


def _check_is_example(
    path: str | Path, first: Row, rows: Sequence[Row], labels: Sequence[str] | None
) -> None:
    """Raises ValueError if the first row may be a header, because no other row has its label."""
    label = rows[0][1][-1]
    counts = Counter(cells[-1] for _, cells in rows)
    if counts[label] > 1 or len(counts) == 1 or label.strip() in (labels or ()):
        return
    only = list(counts.values()).count(1) == 1
    if only or _may_be_names(first[1]):
        reason = f"{path}:{first[0]}: the label {label!r} occurs only in this row"
        names = {"text": rows[0][1][0], "label": label}
        raise ColumnsError(reason, names, may_be_names=True)


def _may_be_names(cells: Sequence[str]) -> bool:
    """Returns whether a row looks like column names; the first, an index's, may be empty."""
    return len(set(cells)) == len(cells) and all(
        re.fullmatch(r"[^\W\d][\w.:#/-]*( [\w.#/-]+){0,2}", cell.strip()) or (i == 0 and not cell)
        for i, cell in enumerate(cells)
    )


def _check_columns(
    path: str | Path, table: Sequence[list[str]], choice: Choice, positions: Sequence[int]
) -> None:
    """Checks the columns that are chosen by index, which users often forget to set.

    Raises:
        ValueError: a column holds something else; the message suggests others.
    """
    first, rows = table[0], table[1:] or table
    header = choice.header != "absent" and _may_be_names(first)
    header = header and not any(name in column for name, *column in zip(*table, strict=True))
    for kind, column, at in zip(choice.kinds, choice.all, positions, strict=True):
        if isinstance(column, str) or kind == "weight":
            continue
        cells = [row[at] for row in rows]
        others = _LABEL_NAMES if kind == "text" else _TEXT_NAMES
        if header and _plain(first[at]) in _ID_NAMES | others:
            wrong = f"is named {first[at]!r}"
        elif kind == "text" and not any(char.isalpha() for cell in cells for char in cell):
            wrong = f"has no letters: {', '.join(cells[:3])!r} ..."
        elif kind == "label" and len(cells) >= _MANY and _are_unique(cells):
            wrong = f"has another value in each of {len(cells)} rows: {cells[0]!r:.40} ..."
        else:
            continue
        raise ColumnsError(
            f"{path}:1: column {column}, for the {kind}s, {wrong}",
            _proposal(table, header=header, labelled=choice.label is not None),
        )


def _are_unique(cells: Sequence[str]) -> bool:
    """Returns whether cells may be texts or a row's number, but not labels or scores."""
    whole = all(re.fullmatch(r"\d{1,18}", cell) for cell in cells)
    in_order = whole and all(
        int(after) == int(before) + 1 for before, after in itertools.pairwise(cells)
    )
    names = not any(_NUMBER.fullmatch(cell) for cell in cells)
    return in_order or (names and len(set(cells)) == len(cells))


def _proposal(
    table: Sequence[list[str]], *, header: bool, labelled: bool = True
) -> dict[str, Column]:
    """Returns the columns that are likely to have texts and labels; none if there are none."""
    names, rows = table[0], table[1:] or table
    columns = list(zip(*rows, strict=True))

    def letters(at: int) -> int:
        return sum(char.isalpha() for cell in columns[at] for char in cell)

    def is_named(at: int, usual_names: frozenset[str]) -> bool:
        return header and _plain(names[at]) in usual_names

    texts = [at for at in range(len(names)) if letters(at) and not is_named(at, _LABEL_NAMES)]
    if not texts:
        return {}
    text = max(texts, key=lambda at: (is_named(at, _TEXT_NAMES), letters(at)))

    def column(at: int) -> Column:
        return names[at] if header and names[at] else at

    if not labelled:
        return {"text": column(text)}
    others = [
        at
        for at in range(len(names))
        if at != text and "" not in columns[at] and not is_named(at, _ID_NAMES)
    ]
    repeating = [at for at in others if len(set(columns[at])) < len(rows)] or others
    if not repeating:
        return {}
    label = min(
        repeating, key=lambda at: (not is_named(at, _LABEL_NAMES), len(set(columns[at])), -at)
    )
    return {"text": column(text), "label": column(label)}


def _arguments(columns: Mapping[str, Column]) -> str:
    return ", ".join(f"{kind}_column={column!r}" for kind, column in columns.items())


def _plain(name: str) -> str:
    return name.strip().lower()


def _object_rows(
    path: str | Path, choice: Choice, format: Literal["jsonl", "parquet"], encoding: str
) -> Iterator[Row]:
    objects = read_objects(path, format=format, encoding=encoding)
    head = list(itertools.islice(objects, _NUM_EXAMINED))
    if not head:
        return
    names = list(head[0][1])
    keys = [
        _key(path, head[0][1], column, format, labelled=choice.label is not None)
        for column in choice.all
    ]
    if format == "parquet":  # its columns have an order, so they may be given by index
        table = [names, *(list(map(str, value.values())) for _, value in head)]
        for key in keys:
            _check_key(head[0][1], key, f"{path}:1: ")
        _check_columns(path, table, choice, [names.index(key) for key in keys])
    for number, value in itertools.chain(head, objects):
        cells = None
        with each_row(f"{path}:{number}"):
            cells = [_cell(value, key) for key in keys]
        if cells is not None:
            yield number, cells


def _key(
    path: str | Path, value: dict[str, Any], column: Column, format: str, *, labelled: bool
) -> str:
    if isinstance(column, str):
        return column
    if format == "jsonl":
        names = [name for name in value if not isinstance(value[name], list | dict)]
        table = [names, [str(value[name]) for name in names]]
        proposal = _arguments(_proposal(table, header=True, labelled=labelled))
        raise ValueError(
            f"{path}: JSON has no column {column}: pass the name of a key of {', '.join(value)}"
            + (f", such as {proposal}" if proposal else "")
        )
    names = list(value)
    if not -len(names) <= column < len(names):
        raise ValueError(f"{path}: no column {column} of 0 to {len(names) - 1}: {', '.join(names)}")
    return names[column]


def _check_key(value: dict[str, Any], key: Any, place: str = "") -> None:
    if key not in value:
        raise ValueError(f"{place}no key {key!r} among {sorted(value)}")


def _cell(value: dict[str, Any], key: Any) -> str:
    """Returns a value as text; numbers and booleans keep their JSON spelling."""
    _check_key(value, key)
    cell = value[key]
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool | int) or (isinstance(cell, float) and math.isfinite(cell)):
        return json.dumps(cell)
    content = "null" if cell is None else repr(cell)
    raise ValueError(
        f"{key!r} is {content:.100}, expected a string; fill in a value, or remove the row"
    )
