"""Reads sentences of labelled words in the format of the CoNLL shared tasks: one word per line.

Labels come in several schemes (see `label_schemes`); everything here returns IOB2.
"""

import dataclasses
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_transformers.data.bad_rows import bad_rows, check_any, reject
from keras_transformers.data.faults import Content, content
from keras_transformers.data.rows import Rows
from keras_transformers.data.text.label_schemes import (
    OUTSIDE,
    Found,
    check_one_scheme,
    parse,
    scheme_of,
    to_iob2,
)
from keras_transformers.files import read_lines

__all__ = ["Sentences", "entity_labels", "load_conll"]

_logger = logging.getLogger(__name__)

_Rows = list[tuple[int, list[str]]]  # the words of a sentence: line number, cells

_DOCUMENT_START = "-DOCSTART-"
_METADATA = re.compile(r"#\s*[\w.:]+ = ")  # such as "# sent_id = 3" in CoNLL-U
# CoNLL-U numbers words from 1; 1-2 is a token of two words, 1.1 an omitted word.
_NO_WORD = re.compile(r"\d+[-.]\d+")


@dataclasses.dataclass(frozen=True)
class Sentences(Rows):
    """Sentences as words, with or without labels.

    Attributes:
        words: the words of each sentence, unchanged.
        labels: one IOB2 label per word of each sentence, or None.
        source: where the sentences come from, for messages.
        weights: the weight of each sentence in the training loss, or None.
    """

    words: Sequence[Sequence[str]]
    labels: Sequence[Sequence[str]] | None = None
    source: str = "memory"
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        lengths = [[len(row) for row in rows] for rows in (self.words, self.labels)]
        if lengths[0] != lengths[1]:
            raise ValueError(f"{self.source}: each sentence must have as many labels as words")

    def _content(self, index: int) -> Content:
        labels = None if self.labels is None else tuple(self.labels[index])
        words = self.words[index]
        return content(" ".join(words), label=labels, key=tuple(words))  # case may decide a label


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Information about a file besides its words and labels.

    Attributes:
        source: the file.
        scheme: the scheme of its labels; two labels in CoNLL-2003's eng.train are exceptions.
        num_documents: number of -DOCSTART- lines, which are not sentences.
        num_comments: number of lines that are comments.
        num_left_out: number of lines for tokens of several words and for omitted words, in CoNLL-U.
        has_index: whether the first column numbers the words of each sentence.
    """

    source: str
    scheme: Found
    num_documents: int
    num_comments: int
    num_left_out: int
    has_index: bool

    def __str__(self) -> str:
        scheme = self.scheme
        text = (
            f"{self.source}: labels in {scheme.name} with {scheme.num_exceptions} exceptions, "
            f"{scheme.num_converted} converted to IOB2; {self.num_documents} documents"
        )
        if self.num_comments:
            text += f", {self.num_comments} comments"
        if self.has_index:
            text += f", words numbered in column 0, {self.num_left_out} lines that are no words"
        return text


@bad_rows()
def load_conll(
    path: str | Path,
    *,
    word_column: int = 0,
    label_column: int | None = -1,
    labels: Sequence[str] | None = None,
    encoding: str = "utf-8",
) -> Sentences:
    """Reads a file with one word per line and columns separated by spaces or tabs.

    Empty lines end sentences; -DOCSTART- lines are skipped. The detected scheme is logged, as a
    warning if some labels do not fit it.

    Before the first word of a sentence, lines that start with `#` are comments (CoNLL-U, WNUT,
    GermEval, MultiCoNER), unless they have as many columns as the other lines and a label: `#` and
    `#hashtag` are words in tweets. If the first column numbers the words of each sentence from 1
    (CoNLL-U, GermEval), column 0 means the next one, and CoNLL-U's lines 1-2 and 1.1 are left out.
    If splitting at spaces does not give all lines the same number of columns, only tabs separate
    columns, so that words may contain spaces.

    Args:
        path: the file, plain or compressed.
        word_column: index of the word, from 0; -1 is the last column.
        label_column: index of the label; None reads no labels.
        labels: the allowed labels, in IOB2; None allows all.
        encoding: see `files.read_lines`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has a different number of columns; a label has no known scheme, or
            another scheme than those before it, or is not in `labels`; the file has no sentences,
            lacks a column or has another encoding. The message names the file and the line.
    """
    reader = _Reader(path, label_column, encoding)
    sentences = list(reader.sentences())
    check_any(sentences, path, "sentences")
    first, width = sentences[0][0][0], reader.width
    for column in (word_column, label_column):
        if column is not None and not -width <= column < width:
            raise ValueError(f"{path}:{first}: no column {column} of 0 to {width - 1}")
    has_index = _is_numbered(sentences)
    num_left_out = 0
    if has_index:
        kept = [[row for row in rows if not _NO_WORD.fullmatch(row[1][0])] for rows in sentences]
        num_left_out = sum(map(len, sentences)) - sum(map(len, kept))
        sentences = kept
        if word_column % width == 0 and (label_column is None or label_column % width != 1):
            word_column = 1
    words = [[cells[word_column] for _, cells in rows] for rows in sentences]
    if label_column is None:
        return Sentences(words, None, str(path))
    tags = [[cells[label_column] for _, cells in rows] for rows in sentences]
    numbers = [[number for number, _ in rows] for rows in sentences]
    _check_labels(path, numbers, tags)
    converted = [to_iob2(row) for row in tags]
    statistics = Statistics(
        str(path),
        scheme_of(tags, converted),
        reader.num_documents,
        reader.num_comments,
        num_left_out,
        has_index,
    )
    _logger.log(
        logging.WARNING if statistics.scheme.num_exceptions else logging.INFO, "%s", statistics
    )
    if labels is not None:
        _check_known(path, numbers, converted, labels)
    return Sentences(words, converted, str(path))


def entity_labels(sentences: Sentences) -> list[str]:
    """Returns the labels in the order of their ids: O, then B- and I- of each type, by name.

    Raises:
        ValueError: there are no labels, or no entities.
    """
    labels = {label for row in sentences.labels or () for label in row} - {OUTSIDE}
    if not labels:
        raise ValueError(
            f"{sentences.source}: no label but {OUTSIDE!r}; a tagger needs entities to learn from. "
            "Is this the right label column?"
        )
    types = sorted({label[2:] for label in labels})
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]


class _Reader:
    """Divides a file into sentences, and counts the lines outside them.

    Attributes:
        width: number of columns.
        num_documents: number of lines that start a document, once `sentences` has finished.
        num_comments: number of comments, once `sentences` has finished.
    """

    def __init__(self, path: str | Path, label_column: int | None, encoding: str) -> None:
        self.path = path
        self.label_column = -1 if label_column is None else label_column
        self.num_documents = self.num_comments = 0
        lines = (line.strip(" \t") for line in read_lines(path, encoding=encoding))
        self._lines = list(enumerate(lines, start=1))
        words = [
            (number, line)
            for number, line in self._lines
            if line and line[0] != "#" and not line.startswith(_DOCUMENT_START)
        ] or [(number, line) for number, line in self._lines if line]
        self._columns = _columns_of(words)
        rows = [self._columns.split(line) for _, line in words]
        self.width = len(rows[0]) if rows else 0
        self._seen = {row[self.label_column] for row in rows if self._has(row)}

    def _has(self, cells: Sequence[str]) -> bool:
        """Returns whether a line has the column of labels."""
        return -len(cells) <= self.label_column < len(cells)

    def sentences(self) -> Iterator[_Rows]:
        """Yields sentences."""
        rows: _Rows = []
        is_bad = False
        for number, line in self._lines:
            cells = self._columns.split(line)
            is_document = cells[0] == _DOCUMENT_START
            if is_document or not line:
                if rows and not is_bad:
                    yield rows
                rows, is_bad = [], False
                self.num_documents += is_document
            elif not rows and self._is_comment(line, cells):
                self.num_comments += 1
            elif len(cells) != self.width:
                is_bad = True  # and with it the sentence
                reject(
                    f"{self.path}:{number}",
                    f"{len(cells)} columns, the first row has {self.width}: "
                    "write one word per line, an empty line after each sentence, and comments "
                    "(# ...) only before a sentence",
                )
            else:
                rows.append((number, cells))
        if rows and not is_bad:
            yield rows

    def _is_comment(self, line: str, cells: Sequence[str]) -> bool:
        """Returns whether a line before a sentence is not a word; `#` is one if it has a label."""
        if line[0] != "#":
            return False
        if len(cells) != self.width or _METADATA.match(line):
            return True
        if self.width == 1 or not self._has(cells):
            return False
        part = parse(cells[self.label_column])
        return not (cells[self.label_column] in self._seen or (part and part.prefix))


# Only spaces and tabs separate columns: a word may contain a no-break space.
_SPACES, _TABS = re.compile("[ \t]+"), re.compile(" *\t *")


def _columns_of(lines: Sequence[tuple[int, str]]) -> re.Pattern[str]:
    """Returns the separator of columns: tabs if only they give all lines equally many."""
    widths = [{len(separator.split(line)) for _, line in lines} for separator in (_SPACES, _TABS)]
    return _TABS if len(widths[0]) > 1 and len(widths[1]) == 1 and widths[1] != {1} else _SPACES


def _is_numbered(sentences: Sequence[_Rows]) -> bool:
    """Returns whether the first column numbers the words of each sentence from 1."""
    return len(sentences[0][0][1]) > 2 and all(
        [cells[0] for _, cells in rows if not _NO_WORD.fullmatch(cells[0])]
        == [str(i) for i in range(1, 1 + sum(not _NO_WORD.fullmatch(c[0]) for _, c in rows))]
        for rows in sentences
    )


def _check_labels(
    path: str | Path, numbers: Sequence[Sequence[int]], tags: Sequence[Sequence[str]]
) -> None:
    first: dict[str, str] = {}
    for number, label in _flat(numbers, tags):
        if label in first:
            continue
        part = parse(label)
        # In a file without prefixes, a header would look like a type.
        is_header = part and not part.prefix and number == numbers[0][0]
        if part is None or (is_header and sum(row.count(label) for row in tags) == 1):
            raise ValueError(
                f"{path}:{number}: label {label!r}, expected O, B-TYPE, I-TYPE or the like: is it "
                "from another column or scheme, or from a header, which such files lack?"
            )
        first[label] = f"{path}:{number}"
    check_one_scheme(first)


def _check_known(
    path: str | Path,
    numbers: Sequence[Sequence[int]],
    tags: Sequence[Sequence[str]],
    labels: Sequence[str],
) -> None:
    names = set(labels)
    for number, label in _flat(numbers, tags):
        if label not in names:
            raise ValueError(
                f"{path}:{number}: unknown label {label!r}, expected one of {list(labels)}"
            )


def _flat(
    numbers: Sequence[Sequence[int]], tags: Sequence[Sequence[str]]
) -> Iterator[tuple[int, str]]:
    for row_numbers, row_tags in zip(numbers, tags, strict=True):
        yield from zip(row_numbers, row_tags, strict=True)
