"""Defines recipe options for labelled texts or labelled words, and reads them."""

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Literal, NamedTuple

from keras_transformers.data.bad_rows import RowOptions
from keras_transformers.data.faults import log_faults
from keras_transformers.data.text import conll
from keras_transformers.data.text.cleaning import deduplicate, split
from keras_transformers.data.text.examples import Examples, label_set, load
from keras_transformers.ranges import AnyInt, Fraction

__all__ = ["LabelledFiles", "Splits", "TaggedFiles", "TaggedSplits"]

_logger = logging.getLogger(__name__)


class Splits(NamedTuple):
    """Examples for training, model selection and testing, and the labels in the order of ids."""

    train: Examples
    dev: Examples
    test: Examples | None
    labels: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTables(RowOptions):
    """The options for tables of texts and labels."""

    # labelled texts: .tsv, .txt (tabs), .csv, .jsonl or .parquet, plain or compressed (.gz, ...)
    train_file: Path
    dev_file: Path | None = None  # chooses the best epoch; None: a share of the training file
    test_file: Path | None = None  # measured once, at the end
    dev_fraction: Fraction = 0.1  # the dev set's share of the training file; the same for all seeds
    text_column: AnyInt | str = 0  # index from 0 (-1: the last), or name
    text_b_column: AnyInt | str | None = None  # the second text of pairs
    label_column: AnyInt | str = 1  # as --text-column
    weight_column: AnyInt | str | None = None  # the training examples' weights in the loss
    header: Literal["auto", "present", "absent"] = "auto"  # does the first row name the columns?
    delimiter: str = "auto"  # separates columns: a character, or tab; auto detects it in a .csv
    encoding: str = "utf-8"  # encoding of the files, such as utf-16 or cp1252
    labels: tuple[str, ...] = ()  # in the order of their ids; empty: the training file's, sorted


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledFiles(LabelledTables):
    """Labelled-text options; a base class for recipe configurations."""

    def read(self) -> Splits:
        """Reads the files; repeated training examples are counted and used once.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: a row or label is invalid; the message names file and line.
        """
        read_file = functools.partial(
            load,
            text_column=self.text_column,
            text_b_column=self.text_b_column,
            label_column=self.label_column,
            header=self.header,
            delimiter=self.delimiter,
            encoding=self.encoding,
        )
        with self.bad_rows():
            train = read_file(
                self.train_file, labels=self.labels or None, weight_column=self.weight_column
            )
            labels = list(self.labels) or label_set(train)
            dev = read_file(self.dev_file, labels=labels) if self.dev_file else None
            test = read_file(self.test_file, labels=labels) if self.test_file else None
        log_faults(train, dev, test)
        train, duplicates = deduplicate(train)
        _logger.info("%s", duplicates)
        if dev is None:
            shares = {"train": 1 - self.dev_fraction, "dev": self.dev_fraction}
            train, dev = split(train, shares, seed=0).values()
        return Splits(train, dev, test, labels)


class TaggedSplits(NamedTuple):
    """Sentences for training, model selection and testing, and the labels in the order of ids."""

    train: conll.Sentences
    dev: conll.Sentences
    test: conll.Sentences | None
    labels: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedFiles(RowOptions):
    """Labelled-word options; a base class for recipe configurations."""

    train_file: Path  # a word and its label per line, blank lines after sentences; see docs/data.md
    dev_file: Path  # chooses the best epoch
    test_file: Path | None = None  # measured once, at the end
    word_column: AnyInt = 0  # index from 0
    label_column: AnyInt = -1  # -1: the last
    encoding: str = "utf-8"  # encoding of the files, such as utf-16 or cp1252

    def read(self) -> TaggedSplits:
        """Reads the files; the training file determines the labels, in IOB2.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: a row or label is invalid; the message names file and line.
        """
        read_file = functools.partial(
            conll.load_conll,
            word_column=self.word_column,
            label_column=self.label_column,
            encoding=self.encoding,
        )
        with self.bad_rows():
            train = read_file(self.train_file)
            labels = conll.entity_labels(train)
            dev = read_file(self.dev_file, labels=labels)
            test = read_file(self.test_file, labels=labels) if self.test_file else None
        log_faults(train, dev, test)
        return TaggedSplits(train, dev, test, labels)
