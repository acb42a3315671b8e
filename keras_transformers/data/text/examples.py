"""Labelled texts and pairs of texts, read from files."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from keras_transformers.files import FileFormat, file_format, read_objects, read_table

__all__ = ["Examples", "label_set", "load", "majority_share"]

Column = str | int
Header = Literal["auto", "present", "absent"]
Row = tuple[int, list[str]]  # (line number, cells)

# Column names in public files (GLUE, SICK, PyPI's). A first row only counts as a header if every
# cell that we read from it is one of them.
# fmt: off
_HEADER_WORDS = frozenset({
    "text", "text_a", "text_b", "sentence", "sentence1", "sentence2", "sentence_a", "sentence_b",
    "question", "question1", "question2", "premise", "hypothesis", "review", "label", "labels",
    "gold_label", "quality", "is_duplicate", "score", "class", "category", "sentiment", "target",
    "source1", "source2", "relatedness_score", "entailment_judgment", "#1 string", "#2 string",
})
# fmt: on


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts, or pairs of texts, with or without labels.

    Attributes:
        texts: the first texts, unchanged; may be empty strings.
        texts_b: the second texts of pairs, or None.
        labels: one non-empty label per text, or None.
        source: where the examples come from, for messages.
    """

    texts: Sequence[str]
    texts_b: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    source: str = "memory"

    def __post_init__(self) -> None:
        for name, values in (("texts_b", self.texts_b), ("labels", self.labels)):
            if values is not None and len(values) != len(self.texts):
                raise ValueError(f"{self.source}: {len(values)} {name} for {len(self.texts)} texts")

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, indices: Iterable[int], source: str | None = None) -> "Examples":
        """Returns the examples at `indices`, in that order."""
        chosen = list(indices)

        def pick(values: Sequence[str] | None) -> list[str] | None:
            return None if values is None else [values[i] for i in chosen]

        return Examples(
            [self.texts[i] for i in chosen],
            pick(self.texts_b),
            pick(self.labels),
            source or self.source,
        )

    def key(self, index: int) -> tuple[str, ...]:
        """Returns a key that is equal for examples that differ only in case or spacing."""
        texts = [self.texts[index]]
        if self.texts_b is not None:
            texts.append(self.texts_b[index])
        return tuple(" ".join(text.split()).casefold() for text in texts)


def load(
    path: str | Path,
    *,
    text_column: Column = 0,
    text_b_column: Column | None = None,
    label_column: Column | None = 1,
    header: Header = "auto",
    format: FileFormat | None = None,
    labels: Sequence[str] | None = None,
) -> Examples:
    """Reads a TSV, CSV or JSON Lines file, plain or `.gz`, such as the files of GLUE.

    >>> load("sst2/dev.tsv")  # doctest: +SKIP
    >>> load("MNLI/train.tsv", text_column="sentence1", text_b_column="sentence2",
    ...      label_column=-1)  # doctest: +SKIP

    Args:
        path: the file. Quoting works in comma-separated files, but not in tab-separated ones
            (GLUE).
        text_column: column of the text: a header name, a JSON key, or an index from 0; -1 is the
            last column.
        text_b_column: column of the second text of a pair; None for single texts.
        label_column: column of the label; None reads no labels. Labels are stripped strings; JSON
            numbers and booleans keep their JSON spelling.
        header: whether the first row names the columns. "auto" decides that it does if a column is
            given by name, or if all cells read from that row are usual column names.
        format: "tsv", "csv" or "jsonl"; None infers it from the file name.
        labels: the allowed labels; None allows all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has no examples or lacks a column; a row has another number of columns
            than the first, or an empty or unknown label; the file is not UTF-8; it is unclear
            whether the first row is a header. The message names the file and the line.
    """
    columns = [text_column]
    if text_b_column is not None:
        columns.append(text_b_column)
    if label_column is not None:
        columns.append(label_column)
    format = format or file_format(path)
    if format == "jsonl":
        rows = _object_rows(path, columns)
    else:
        rows = _table_rows(path, columns, header, format, labelled=label_column is not None)
    if not rows:
        raise ValueError(f"{path}: no examples; the file is empty or has only a header")
    found = None
    if label_column is not None:
        found = [cells[-1].strip() for _, cells in rows]
        _check_labels(path, [number for number, _ in rows], found, labels)
    return Examples(
        [cells[0] for _, cells in rows],
        [cells[1] for _, cells in rows] if text_b_column is not None else None,
        found,
        str(path),
    )


def label_set(examples: Examples) -> list[str]:
    """Returns the labels that occur: numbers first, by value ("2" before "10"), then names.

    Raises:
        ValueError: there are no labels, or only one.
    """
    labels = sorted(set(examples.labels or ()), key=_natural_order)
    if len(labels) < 2:
        raise ValueError(
            f"{examples.source}: {len(labels)} different labels {labels}; a classifier needs at "
            "least two. Is this the right label column?"
        )
    return labels


def majority_share(examples: Examples) -> float:
    """Returns the share of the most frequent label: the accuracy of always predicting it."""
    counts = Counter(examples.labels or ())
    if not counts:
        raise ValueError(f"{examples.source}: no labels")
    return max(counts.values()) / len(examples)


def _table_rows(
    path: str | Path,
    columns: Sequence[Column],
    header: Header,
    format: Literal["tsv", "csv"],
    *,
    labelled: bool,
) -> list[Row]:
    """Returns the cells of `columns` in each row below the header."""
    table = list(read_table(path, format=format))
    if not table:
        return []
    positions = [_position(path, table[0][1], column) for column in columns]
    rows = [(number, [cells[at] for at in positions]) for number, cells in table]
    names = [column for column in columns if isinstance(column, str)]
    if names and header == "absent":
        raise ValueError(f"{path}: header='absent', but the columns {names} are given by name")
    known = all(cell.strip().lower() in _HEADER_WORDS for cell in rows[0][1])
    if names or header == "present" or (header == "auto" and known):
        if labelled and not names and not known:
            _check_is_header(path, rows)
        return rows[1:]
    if labelled and (header == "auto" or known):
        _check_is_example(path, rows)
    return rows


def _check_is_header(path: str | Path, rows: Sequence[Row]) -> None:
    label = rows[0][1][-1]
    if any(cells[-1] == label for _, cells in rows[1:]):
        raise ValueError(
            f"{path}:{rows[0][0]}: given as a header, but other rows also have its label "
            f"{label!r}: use header='absent'"
        )


def _check_is_example(path: str | Path, rows: Sequence[Row]) -> None:
    """Refuses to guess if the first row's label is the only one that occurs just once."""
    label = rows[0][1][-1]
    counts = Counter(cells[-1] for _, cells in rows)
    once = [other for other, count in counts.items() if count == 1]
    if once == [label] and len(counts) > 1:
        raise ValueError(
            f"{path}:{rows[0][0]}: the label {label!r} occurs only in this row: use "
            "header='present' if the row names the columns, header='absent' if it is an example"
        )


def _object_rows(path: str | Path, columns: Sequence[Column]) -> list[Row]:
    for column in columns:
        if not isinstance(column, str):
            raise ValueError(f"{path}: JSON has no column {column}: give the name of a key")
    rows = []
    for number, value in read_objects(path):
        cells = []
        for column in columns:
            if column not in value:
                raise ValueError(f"{path}:{number}: no key {column!r} among {sorted(value)}")
            cell = value[column]
            if cell is None or isinstance(cell, dict | list):
                raise ValueError(f"{path}:{number}: {column!r} is {cell!r}, expected a string")
            cells.append(cell if isinstance(cell, str) else json.dumps(cell))
        rows.append((number, cells))
    return rows


def _position(path: str | Path, names: Sequence[str], column: Column) -> int:
    if isinstance(column, str):
        if names.count(column) != 1:
            count = names.count(column)
            raise ValueError(f"{path}:1: {count} columns named {column!r} among {list(names)}")
        return names.index(column)
    if not -len(names) <= column < len(names):
        raise ValueError(f"{path}:1: no column {column} of 0 to {len(names) - 1}")
    return column


def _check_labels(
    path: str | Path, numbers: Sequence[int], found: Sequence[str], labels: Sequence[str] | None
) -> None:
    for number, label in zip(numbers, found, strict=True):
        if not label:
            raise ValueError(f"{path}:{number}: an empty label")
        if labels is not None and label not in labels:
            raise ValueError(f"{path}:{number}: unknown label {label!r}, expected one of {labels}")


def _natural_order(label: str) -> tuple[bool, float, list[tuple[int, str]]]:
    if re.fullmatch(r"[-+]?\d+(\.\d+)?", label):
        return False, float(label), []
    pieces = re.findall(r"\d+|\D+", label)
    return True, 0.0, [(int(p), "") if p.isdecimal() else (-1, p) for p in pieces]
