"""Sentences of labelled words, as CoNLL's shared tasks write them: one word per line.

Labels come in two schemes, IOB1 (B- only between entities of one type that touch: the original
files of CoNLL-2003) and IOB2 (B- at the start of each entity: most copies). Both are read;
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
    """Words with labels, sentence by sentence.

    Attributes:
        words: of each sentence, as the file has them.
        labels: of each sentence as many as words, in IOB2; or None.
        source: where they come from, for messages.
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
    """What a file's labels looked like.

    Attributes:
        source: the file.
        name: "IOB1" or "IOB2", whichever fits more labels; "either" if the labels fit both.
        num_converted: how many labels reading changed, I- to B-.
        num_exceptions: labels that are not in the scheme, two in CoNLL-2003's eng.train.
        num_documents: lines -DOCSTART-, which are not sentences.
    """

    source: str
    name: Literal["IOB1", "IOB2", "either"]
    num_converted: int
    num_exceptions: int
    num_documents: int

    def __str__(self) -> str:
        return (
            f"{self.source}: labels in {self.name} but for {self.num_exceptions}, "
            f"{self.num_converted} made IOB2; {self.num_documents} documents"
        )


def load_conll(
    path: str | Path,
    *,
    word_column: int = 0,
    label_column: int | None = -1,
    labels: Sequence[str] | None = None,
) -> Sentences:
    """Reads a file of one word per line, its columns separated by spaces or tabs, plain or `.gz`.

    Empty lines end sentences; lines that start with -DOCSTART- are skipped, whatever follows. The
    detected scheme is logged, as a warning if some labels follow the other one.

    Args:
        path: the file.
        word_column: index from 0; -1 is the last.
        label_column: index, too; None reads no labels.
        labels: the labels that may occur, in IOB2; None allows all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has another number of columns than the first, or a label that is not O,
            B-..., I-..., or not one of `labels`; the file has no sentences, or lacks the column;
            the bytes are not UTF-8. The message names the file and the line.
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
                raise ValueError(f"{path}:{rows[0][0]}: no column {column} of {width}, from 0")
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
    """O, then B- and I- of each type that occurs, by name: the labels in the order of their ids.

    Raises:
        ValueError: there are no labels, or no entities.
    """
    found = {label for row in sentences.labels or () for label in row} - {OUTSIDE}
    if not found:
        raise ValueError(
            f"{sentences.source}: no label but {OUTSIDE!r}, a tagger needs entities to learn from; "
            "is the label column the right one?"
        )
    types = sorted({label[2:] for label in found})
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]


def to_iob2(labels: Sequence[str]) -> list[str]:
    """The labels of a sentence with B- at each start of an entity, as conlleval finds them.

    An I- starts an entity where the label before it is of another type. So IOB1 is converted, and
    IOB2 stays as it is.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    """
    return [
        f"B-{label[2:]}" if label.startswith("I-") and previous[2:] != label[2:] else label
        for previous, label in itertools.pairwise([OUTSIDE, *labels])
    ]


def _sentences(path: str | Path) -> Iterator[list[tuple[int, list[str]]] | int]:
    """Yields sentences, rows of (line number, cells), and 1 for each start of a document."""
    width = None
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(read_lines(path), start=1):
        # Only spaces and tabs separate columns: a word may hold a no-break space.
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
                "per line, an empty line after each sentence"
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
                f"{path}:{number}: label {label!r}, expected O, B-TYPE or I-TYPE: is it another "
                "column's, another scheme's, or a header, which such files lack?"
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
    # Only IOB1 has an I- that starts an entity, only IOB2 a B- after a label of another type.
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
