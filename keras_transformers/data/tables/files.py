"""Reads all columns of files row by row, and writes them with more columns."""

import contextlib
import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from keras_transformers.data.tables.appending import arrow_column
from keras_transformers.data.tables.kinds import Kind, arrow_type
from keras_transformers.data.tables.reading import (
    FileFormat,
    file_format,
    read_objects,
    read_table,
)
from keras_transformers.dependencies.extras import optional
from keras_transformers.files import compression, read_lines

__all__: list[str] = []

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
_OUTPUTS = (".csv", ".tsv", ".jsonl", ".parquet")

NumberedRow = tuple[int, dict[str, Any]]  # a line, or a row from 1; name -> cell
Lines = Callable[[str], dict[str, Any]]


def read_rows(
    path: Path,
    lines: Lines,
    *,
    numbered: Mapping[int, str] | None = None,
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> Iterator[NumberedRow]:
    """Yields (number, row) of a table, or of a file with one row per line.

    Args:
        path: the file, plain or compressed. It is a table if its name ends in .tsv, .csv, .jsonl,
            .json or .parquet; the first row of .tsv and .csv names the columns.
        lines: makes a row of a line of any other file.
        numbered: for .tsv and .csv whose first row is an example: the number of a column, from 0
            -> its name. The others become `column_` and their number.
        delimiter: see `reading.read_table`.
        encoding: see `files.read_lines`.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: Parquet or `.zst` needs the extra `data`.
        ValueError: a row is malformed, or two columns have one name; the message has the line.
    """
    if not is_table(path):
        for number, line in enumerate(read_lines(path, encoding=encoding), start=1):
            try:
                row = lines(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
            yield number, row
        return
    format = file_format(path)
    if format == "jsonl" or format == "parquet":
        yield from read_objects(path, format=format, encoding=encoding)
        return
    table = read_table(path, format=format, delimiter=delimiter, encoding=encoding)
    number, names = next(table, (1, []))
    if numbered:
        if wrong := [column for column in numbered if not 0 <= column < len(names)]:
            raise ValueError(
                f"{path}:{number}: no column {wrong[0]} of 0 to {len(names) - 1}: pass one of these"
            )
        table = itertools.chain([(number, names)], table)
        names = [numbered.get(at, f"column_{at}") for at in range(len(names))]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"{path}:{number}: {names.count(twice[0])} columns are named {twice[0]!r}: rename all "
            "but one"
        )
    for number, cells in table:
        yield number, dict(zip(names, cells, strict=True))


def parts(rows: Iterable[NumberedRow], size: int) -> Iterator[list[NumberedRow]]:
    """Yields rows in lists of a size; the last may be shorter."""
    rows = iter(rows)
    while part := list(itertools.islice(rows, size)):
        yield part


def is_table(path: str | Path) -> bool:
    """Returns whether a file's name says that it is a table."""
    return Path(compression.inner_name(path)).suffix.lower() in TABLES


def is_output(path: str) -> bool:
    """Returns whether the name of a file to write says that it is a table."""
    return Path(path).suffix.lower() in _OUTPUTS


def output_format(path: str) -> FileFormat:
    """Returns the format of a file to write.

    Raises:
        ValueError: its name ends in none of .csv, .tsv, .jsonl, .parquet.
    """
    if not is_output(path):
        raise ValueError(f"{path}: the name of the output must end in {', '.join(_OUTPUTS)}")
    return file_format(path)


class Writer(Protocol):
    """Writes rows of a table, with more columns."""

    def __call__(
        self, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """Writes rows.

        Args:
            rows: name -> cell.
            columns: the columns that are added: name -> a cell per row, JSON values.
        """


@contextlib.contextmanager
def table_writer(
    path: Path, format: FileFormat, names: Sequence[str], kinds: Mapping[str, Kind], schema: Any
) -> Iterator[Writer]:
    """Yields what writes rows of a table.

    In .csv and .tsv, cells that are no text are JSON.

    Args:
        path: the file.
        format: its format.
        names: the columns of the rows.
        kinds: the columns that are added: name -> kind.
        schema: for Parquet, the schema of the rows, from `row_schema`.
    """
    if format == "parquet":
        with _parquet_writer(path, kinds, schema) as write:
            yield write
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        if format == "jsonl":
            yield lambda rows, columns: file.writelines(
                f"{json.dumps(row, ensure_ascii=False, default=str)}\n"
                for row in _joined(rows, columns)
            )
            return
        headings = [*names, *kinds]
        quoted = csv.writer(file, lineterminator="\n")

        def write_cells(cells: Sequence[str]) -> None:
            if format == "csv":
                quoted.writerow(cells)
            else:
                file.write("\t".join(map(_without_tabs, cells)) + "\n")

        def write_rows(
            rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Sequence[Any]]
        ) -> None:
            for row in _joined(rows, columns):
                write_cells([_text(row.get(name)) for name in headings])

        write_cells(headings)
        yield write_rows


def row_schema(path: Path, rows: Iterable[NumberedRow], size: int) -> Any:
    """Returns the Arrow schema of a table's rows: that of a Parquet file, else one that fits them.

    Args:
        path: the file.
        rows: its rows.
        size: how many rows to hold in memory.

    Raises:
        MissingExtraError: the extra `data` is not installed.
        ValueError: a column has values of several types.
    """
    arrow = optional("pyarrow", extra="data")
    if is_table(path) and file_format(path) == "parquet":
        parquet = optional("pyarrow.parquet", extra="data")
        with compression.opened(path) as file:
            is_plain = path.suffix.lower() not in compression.SUFFIXES
            return parquet.read_schema(file if is_plain else io.BytesIO(file.read()))
    schema = arrow.schema([])
    for part in parts(rows, size):
        try:
            more = arrow.Table.from_pylist([row for _, row in part]).schema
            schema = arrow.unify_schemas([schema, more], promote_options="permissive")
        except arrow.ArrowException as error:
            raise ValueError(
                f"{path}:{part[0][0]}-{part[-1][0]}: Parquet holds one type per column ({error}): "
                "let the output end in .jsonl"
            ) from error
    return schema


@contextlib.contextmanager
def _parquet_writer(path: Path, kinds: Mapping[str, Kind], schema: Any) -> Iterator[Writer]:
    arrow = optional("pyarrow", extra="data")
    parquet = optional("pyarrow.parquet", extra="data")
    whole = schema
    for name, kind in kinds.items():
        whole = whole.append(arrow.field(name, arrow_type(kind, arrow)))
    with parquet.ParquetWriter(path, whole) as file:

        def write_rows(
            rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Sequence[Any]]
        ) -> None:
            arrays = arrow.Table.from_pylist(list(rows), schema=schema).columns
            arrays += [arrow_column(columns[name], kind) for name, kind in kinds.items()]
            file.write_table(arrow.Table.from_arrays(arrays, schema=whole))

        yield write_rows


def _joined(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        yield {**row, **dict(zip(columns, cells, strict=True))}


def _text(cell: Any) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    is_json = isinstance(cell, bool | int | float | list | dict)
    return json.dumps(cell, ensure_ascii=False, default=str) if is_json else str(cell)


def _without_tabs(cell: str) -> str:
    if "\t" in cell or "\n" in cell:
        raise ValueError(
            f"{cell!r:.80} has a tab or a line end, which .tsv cannot hold: let the output end in "
            ".csv or .jsonl"
        )
    return cell
