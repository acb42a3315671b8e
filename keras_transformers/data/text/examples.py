"""Reads labelled texts and pairs of texts from files."""

import dataclasses
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from keras_transformers.data.bad_rows import bad_rows, check_any, each_row
from keras_transformers.data.faults import Content, content, plain
from keras_transformers.data.rows import Rows
from keras_transformers.data.tables.columns import Choice, Column, Header, Row, read_columns
from keras_transformers.data.tables.reading import FileFormat
from keras_transformers.data.weighting import check_weights, row_weight

__all__ = ["Examples", "label_set", "load", "majority_share"]

_logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


@dataclasses.dataclass(frozen=True)
class Examples(Rows):
    """Texts, or pairs of texts, with or without labels.

    Attributes:
        texts: the first texts, unchanged; may be empty strings.
        texts_b: the second texts of pairs, or None.
        labels: one non-empty label per text, or None.
        source: where the examples come from, for messages.
        weights: the weight of each example in the training loss, or None.
    """

    texts: Sequence[str]
    texts_b: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    source: str = "memory"
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        columns = {"texts_b": self.texts_b, "labels": self.labels, "weights": self.weights}
        for name, values in columns.items():
            if values is not None and len(values) != len(self.texts):
                raise ValueError(f"{self.source}: {len(values)} {name} for {len(self.texts)} texts")

    def key(self, index: int) -> tuple[str, ...]:
        """Returns a key that is equal for examples that differ only in case or spacing."""
        texts = [self.texts[index]]
        if self.texts_b is not None:
            texts.append(self.texts_b[index])
        return tuple(map(plain, texts))

    def _content(self, index: int) -> Content:
        texts = (self.texts, self.texts_b)
        label = None if self.labels is None else self.labels[index]
        return content(*(column[index] for column in texts if column is not None), label=label)


@bad_rows()
def load(
    path: str | Path,
    *,
    text_column: Column = 0,
    text_b_column: Column | None = None,
    label_column: Column | None = 1,
    weight_column: Column | None = None,
    header: Header = "auto",
    format: FileFormat | None = None,
    labels: Sequence[str] | None = None,
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> Examples:
    """Reads a TSV, CSV, JSON Lines or Parquet file, plain or compressed, such as GLUE's files.

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
            numbers and booleans keep their JSON spelling, but if 1.0 occurs beside 1 or 0, whole
            numbers are written without a decimal point.
        weight_column: column of the examples' weights in the training loss; None reads none.
        header: whether the first row names the columns. "auto" decides that it does if a column is
            given by name, or if all cells read from that row are usual column names.
        format: "tsv", "csv", "jsonl" or "parquet"; None infers it from the file name.
        labels: the allowed labels; None allows all.
        delimiter: separates the cells of a row: a character, "tab", or "auto"; see
            `tables.reading.read_table`.
        encoding: the file's encoding, such as "utf-8", "utf-16" or "cp1252".

    Raises:
        FileNotFoundError: there is no such file.
        MissingExtraError: Parquet or `.zst` needs the extra `data`.
        ValueError: the file has no examples or lacks a column; a column given by its index has no
            texts or labels in it, such as a row's number (the message says which columns fit); a
            row has a different number of columns than the first, or an empty or unknown label;
            labels are both booleans and numbers; the file has another encoding; it is unclear
            whether the first row is a header. The message names the file and the line.
    """
    choice = Choice(
        texts=[text_column] if text_b_column is None else [text_column, text_b_column],
        label=label_column,
        weight=weight_column,
        header=header,
        labels=labels,
    )
    rows: list[Row] = []
    for number, cells in read_columns(
        path, choice, format=format, delimiter=delimiter, encoding=encoding
    ):
        with each_row(f"{path}:{number}"):
            if label_column is not None and not cells[-1].strip():
                raise ValueError("an empty label: fill it in, or drop the row")
            check_weight(cells, choice)
            rows.append((number, cells))
    check_any(rows, path)
    row_labels = None
    if label_column is not None:
        row_labels = _labels(path, rows, labels)
    return Examples(
        [cells[0] for _, cells in rows],
        [cells[1] for _, cells in rows] if text_b_column is not None else None,
        row_labels,
        str(path),
        weights_of(path, rows, choice),
    )


def check_weight(cells: Sequence[str], choice: Choice) -> None:
    """Raises ValueError if the weight of a row is none; see `row_weight`."""
    if choice.weight is not None:
        row_weight(cells[choice.kinds.index("weight")])


def weights_of(path: str | Path, rows: Sequence[Row], choice: Choice) -> list[float] | None:
    """Returns the weights among the cells that `read_columns` read; None if it read none.

    Raises:
        ValueError: all are 0.
    """
    if choice.weight is None:
        return None
    weights = [row_weight(cells[choice.kinds.index("weight")]) for _, cells in rows]
    check_weights(weights, str(path))
    return weights


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


def _labels(path: str | Path, rows: Sequence[Row], labels: Sequence[str] | None) -> list[str]:
    """Returns the labels of rows, with one spelling per value."""
    row_labels = [cells[-1].strip() for _, cells in rows]
    first: dict[str, int] = {}  # label -> the line where it first occurs
    for (number, _), label in zip(rows, row_labels, strict=True):
        first.setdefault(label, number)
    _check_booleans(path, first)
    spelled = _spellings(first, labels)
    if changed := {label: new for label, new in spelled.items() if label != new}:
        _logger.info("%s: labels that are the same number: %s", path, changed)
    for label, number in first.items():
        if labels is not None and spelled[label] not in labels:
            raise ValueError(f"{path}:{number}: unknown label {label!r}, expected one of {labels}")
    by_lower: dict[str, str] = {}
    for label in spelled.values():
        if by_lower.setdefault(label.lower(), label) != label:
            _logger.warning(
                "%s:%d: the labels %r and %r differ only in case, but count as two",
                *(path, first[label], by_lower[label.lower()], label),
            )
    return [spelled[label] for label in row_labels]


def _check_booleans(path: str | Path, first: Mapping[str, int]) -> None:
    booleans = [label for label in first if label.lower() in ("true", "false")]
    numbers = [label for label in first if _NUMBER.fullmatch(label)]
    if booleans and numbers:
        boolean, number = booleans[0], numbers[0]
        raise ValueError(
            f"{path}:{first[boolean]}: the label {boolean!r}, but line {first[number]} has "
            f"{number!r}: write all as booleans, or all as numbers"
        )


def _spellings(spellings: Iterable[str], labels: Sequence[str] | None) -> dict[str, str]:
    """Returns each label -> its spelling, the same for the same number.

    1.0 becomes 1 if 1 or 0 also occurs; given `labels`, it takes their spelling.
    """
    spelled = {label: label for label in spellings}
    whole = {label: number for label in spelled if (number := _whole(label)) is not None}
    is_mixed = len({"." in label for label in whole}) > 1
    if is_mixed or len(set(whole.values())) < len(whole):
        spelled |= whole
    by_number = {_whole(label): label for label in labels or ()}
    for label in whole:
        if label not in (labels or ()):
            spelled[label] = by_number.get(whole[label], spelled[label])
    return spelled


def _whole(label: str) -> str | None:
    """Returns the shortest spelling of a whole number; None for other labels.

    >>> _whole("1.0"), _whole("-01"), _whole("1.5")
    ('1', '-1', None)
    """
    if not (match := re.fullmatch(r"([-+]?)0*(\d+)(\.0+)?", label)):
        return None
    return match[2] if match[1] != "-" or match[2] == "0" else f"-{match[2]}"


def _natural_order(label: str) -> tuple[bool, float, list[tuple[int, str]]]:
    if _NUMBER.fullmatch(label):
        return False, float(label), []
    pieces = re.findall(r"\d+|\D+", label)
    return True, 0.0, [(int(p), "") if p.isdecimal() else (-1, p) for p in pieces]
