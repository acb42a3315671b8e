"""Sentences of labelled words in the format of the CoNLL shared tasks: one word per line.

Labels come in two schemes: IOB1, with B- only between adjacent entities of one type (the original
CoNLL-2003 files), and IOB2, with B- at the start of each entity (most copies). Both can be read;
everything here returns IOB2.
"""

import dataclasses
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from keras_transformers.files import read_lines

__all__ = ["Sentences", "entity_labels", "load_conll", "to_iob2"]

_logger = logging.getLogger(__name__)

OUTSIDE = "O"
_DOCUMENT_START = "-DOCSTART-"
_LABEL = re.compile(r"O|[BI]-(?P<type>.+)")


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Sentences as words, with or without labels.

    Attributes:
        words: the words of each sentence, unchanged.
        labels: one IOB2 label per word of each sentence, or None.
        source: where the sentences come from, for messages.
    """

    words: Sequence[Sequence[str]]
    labels: Sequence[Sequence[str]] | None = None
    source: str = "memory"

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        lengths = [[len(row) for row in rows] for rows in (self.words, self.labels)]
        if lengths[0] != lengths[1]:
            raise ValueError(f"{self.source}: each sentence must have as many labels as words")

    def __len__(self) -> int:
        return len(self.words)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """The label scheme of a file.

    Attributes:
        source: the file.
        name: "IOB1" or "IOB2", whichever fits more labels; "either" if both fit all.
        num_converted: number of labels converted from I- to B-.
        num_exceptions: number of labels that do not fit the scheme; two in CoNLL-2003's eng.train.
        num_documents: number of -DOCSTART- lines, which are not sentences.
    """

    source: str
    name: Literal["IOB1", "IOB2", "either"]
    num_converted: int
    num_exceptions: int
    num_documents: int

    def __str__(self) -> str:
        return (
            f"{self.source}: labels in {self.name} with {self.num_exceptions} exceptions, "
            f"{self.num_converted} converted to IOB2; {self.num_documents} documents"
        )


def load_conll(
    path: str | Path,
    *,
    word_column: int = 0,
    label_column: int | None = -1,
    labels: Sequence[str] | None = None,
) -> Sentences:
    """Reads a file with one word per line and columns separated by spaces or tabs.

    Empty lines end sentences; -DOCSTART- lines are skipped. The detected scheme is logged, as a
    warning if some labels follow the other one.

    Args:
        path: the file, plain or `.gz`.
        word_column: index of the word, from 0; -1 is the last column.
        label_column: index of the label; None reads no labels.
        labels: the allowed labels, in IOB2; None allows all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has another number of columns than the first; a label is not O, B-... or
            I-..., or not in `labels`; the file has no sentences, lacks a column or is not UTF-8.
            The message names the file and the line.
    """
    words: list[list[str]] = []
    tags: list[list[str]] = []
    numbers: list[list[int]] = []
    num_documents = 0
    for rows in _sentences(path):
        if isinstance(rows, int):
            num_documents += rows
            continue
        width = len(rows[0][1])
        for column in (word_column, label_column):
            if column is not None and not -width <= column < width:
                raise ValueError(f"{path}:{rows[0][0]}: no column {column} of 0 to {width - 1}")
        words.append([cells[word_column] for _, cells in rows])
        numbers.append([number for number, _ in rows])
        if label_column is not None:
            tags.append([cells[label_column] for _, cells in rows])
    if not words:
        raise ValueError(f"{path}: no sentences; is the file empty?")
    if label_column is None:
        return Sentences(words, None, str(path))
    _check_iob(path, numbers, tags)
    converted = [to_iob2(row) for row in tags]
    scheme = _scheme(path, tags, converted, num_documents)
    _logger.log(logging.WARNING if scheme.num_exceptions else logging.INFO, "%s", scheme)
    if labels is not None:
        _check_known(path, numbers, converted, labels)
    return Sentences(words, converted, str(path))


def entity_labels(sentences: Sentences) -> list[str]:
    """Returns the labels in the order of their ids: O, then B- and I- of each type, by name.

    Raises:
        ValueError: there are no labels, or no entities.
    """
    found = {label for row in sentences.labels or () for label in row} - {OUTSIDE}
    if not found:
        raise ValueError(
            f"{sentences.source}: no label but {OUTSIDE!r}; a tagger needs entities to learn from. "
            "Is this the right label column?"
        )
    types = sorted({label[2:] for label in found})
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]


def to_iob2(labels: Sequence[str]) -> list[str]:
    """Converts the labels of a sentence from IOB1 to IOB2; IOB2 stays unchanged.

    As in conlleval, I- starts an entity if the label before it has another type.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    """
    return [
        f"B-{label[2:]}" if label.startswith("I-") and previous[2:] != label[2:] else label
        for previous, label in itertools.pairwise([OUTSIDE, *labels])
    ]


def _sentences(path: str | Path) -> Iterator[list[tuple[int, list[str]]] | int]:
    """Yields sentences as rows of (line number, cells), and 1 for each start of a document."""
    width = None
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(read_lines(path), start=1):
        # Only spaces and tabs separate columns: a word may contain a no-break space.
        cells = re.split("[ \t]+", line.strip(" \t"))
        is_document = cells[0] == _DOCUMENT_START
        if is_document or cells == [""]:
            if rows:
                yield rows
            rows = []
            if is_document:
                yield 1
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise ValueError(
                f"{path}:{number}: {len(cells)} columns, the first row has {width}: give one word "
                "per line, and an empty line after each sentence"
            )
        rows.append((number, cells))
    if rows:
        yield rows


def _check_iob(
    path: str | Path, numbers: Sequence[Sequence[int]], tags: Sequence[Sequence[str]]
) -> None:
    for number, label in _flat(numbers, tags):
        if not _LABEL.fullmatch(label):
            raise ValueError(
                f"{path}:{number}: label {label!r}, expected O, B-TYPE or I-TYPE: is it from "
                "another column or scheme, or from a header, which such files lack?"
            )


def _check_known(
    path: str | Path,
    numbers: Sequence[Sequence[int]],
    tags: Sequence[Sequence[str]],
    labels: Sequence[str],
) -> None:
    known = set(labels)
    for number, label in _flat(numbers, tags):
        if label not in known:
            raise ValueError(
                f"{path}:{number}: unknown label {label!r}, expected one of {list(labels)}"
            )


def _flat(
    numbers: Sequence[Sequence[int]], tags: Sequence[Sequence[str]]
) -> Iterator[tuple[int, str]]:
    for row_numbers, row_tags in zip(numbers, tags, strict=True):
        yield from zip(row_numbers, row_tags, strict=True)


def _scheme(
    path: str | Path,
    tags: Sequence[Sequence[str]],
    converted: Sequence[Sequence[str]],
    num_documents: int,
) -> Scheme:
    # In IOB1 only, I- can start an entity; in IOB2 only, B- can follow a label of another type.
    num_iob1 = num_iob2 = 0
    for row, new in zip(tags, converted, strict=True):
        num_iob1 += sum(before != after for before, after in zip(row, new, strict=True))
        num_iob2 += sum(
            label.startswith("B-") and previous[2:] != label[2:]
            for previous, label in itertools.pairwise([OUTSIDE, *row])
        )
    name: Literal["IOB1", "IOB2", "either"] = "IOB1" if num_iob1 > num_iob2 else "IOB2"
    if num_iob1 == num_iob2 == 0:
        name = "either"
    return Scheme(str(path), name, num_iob1, min(num_iob1, num_iob2), num_documents)
