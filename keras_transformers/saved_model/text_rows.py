"""Reads texts from files for an export's inputs: lines of text, or rows of tables."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.data.tables.columns import Choice, Column, read_columns
from keras_transformers.data.tables.reading import file_format, read_objects, read_table
from keras_transformers.files import compression
from keras_transformers.tasks.texts import split_line, takes_lists

__all__ = ["TextRows"]

_TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")

Row = tuple[list[Any], str]  # the texts, and why they cannot be read, or ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRows:
    """How to read the texts of a file.

    A file is a table if its name ends in .tsv, .csv, .jsonl, .json or .parquet, possibly followed
    by the suffix of a compression. Any other file is text with one row per line, and tabs between
    the texts if the export takes several.

    Attributes:
        text_column: the column of the first text in a table, by name or index; None: the columns
            have the names of the inputs, or are the first ones.
        text_b_column: the same for the second text.
        delimiter: see `data.tables.reading.read_table`.
        encoding: see `files.read_lines`.
    """

    text_column: Column | None = None
    text_b_column: Column | None = None
    delimiter: str = "auto"
    encoding: str = "utf-8"

    def read(self, path: Path, names: Sequence[str]) -> Iterator[Row]:
        """Yields the texts of each row.

        Args:
            path: the file, plain or compressed.
            names: the inputs of the export; see `tasks.texts.text_inputs`.

        Raises:
            MissingExtraError: Parquet or `.zst` needs the extra `data`.
            ValueError: a table has no such columns, or is malformed; see
                `data.tables.columns.read_columns`.
        """
        is_table = Path(compression.inner_name(path)).suffix.lower() in _TABLES
        has_lists = takes_lists(names[-1])
        if not is_table or (has_lists and file_format(path) == "tsv"):
            yield from self._lines(path, names)
        elif has_lists:
            yield from self._lists(path, names)
        else:
            choice = Choice(texts=self._columns(path, names))
            rows = read_columns(path, choice, delimiter=self.delimiter, encoding=self.encoding)
            yield from ((list(cells), "") for _, cells in rows)

    def _lines(self, path: Path, names: Sequence[str]) -> Iterator[Row]:
        for line, reason in files.try_lines(path, encoding=self.encoding):
            fields = split_line(line, names)
            if not reason and len(fields) != len(names):
                reason = f"not {len(names)} texts with tabs between them, but {len(fields)}"
            yield fields, reason

    def _lists(self, path: Path, names: Sequence[str]) -> Iterator[Row]:
        """Yields the texts of JSON objects; the last text is a list."""
        format = file_format(path)
        if format == "csv" or format == "tsv":
            raise ValueError(f"{path}: a row cannot hold {names[-1]}: use JSON Lines or Parquet")
        keys = list(map(str, self._given(names)))
        for number, value in read_objects(path, format=format, encoding=self.encoding):
            row = [value.get(key) for key in keys]
            texts = [*row[:-1], *(row[-1] if isinstance(row[-1], list) else [None])]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError(
                    f"{path}:{number}: {row!r:.100}, expected strings for {', '.join(keys[:-1])} "
                    f"and a list of strings for {keys[-1]} among {', '.join(value)}"
                )
            yield row, ""

    def _columns(self, path: Path, names: Sequence[str]) -> list[Column]:
        if self.text_column is not None:
            return self._given(names)
        format = file_format(path)
        if format == "jsonl":
            return list(names)
        if format == "parquet":
            first = next((list(value) for _, value in read_objects(path, format=format)), [])
        else:
            table = read_table(
                path, format=format, delimiter=self.delimiter, encoding=self.encoding
            )
            first = next((cells for _, cells in table), [])
        return list(names) if set(names) <= set(first) else list(range(len(names)))

    def _given(self, names: Sequence[str]) -> list[Column]:
        """Returns the given columns, or the inputs' names where none is given."""
        columns = (self.text_column, self.text_b_column)
        return [
            name if column is None else column for name, column in zip(names, columns, strict=False)
        ]
