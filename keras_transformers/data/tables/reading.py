"""Reads TSV, CSV, JSON Lines and Parquet tables, with errors that name the row."""

import csv
import io
import itertools
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from keras_transformers.data.bad_rows import each_row, reject
from keras_transformers.dependencies.extras import optional
from keras_transformers.files import compression, read_lines
from keras_transformers.files.reading import parse_json
from keras_transformers.files.surrogates import check_json

FileFormat = Literal["tsv", "csv", "jsonl", "parquet"]

_FORMAT_OF_SUFFIX: dict[str, FileFormat] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
# The delimiters to try; the first that fits is used.
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_NUM_ROWS_EXAMINED, _NUM_LINES_EXAMINED = 20, 1000
_EXCEL_LINE = re.compile("sep=(.)")
_field_size_limit = threading.Lock()


def file_format(path: str | Path) -> FileFormat:
    """Returns a file's format from its suffix, ignoring that of a compression.

    Raises:
        ValueError: the name ends in none of .tsv, .txt, .csv, .jsonl, .json, .parquet.
    """
    suffix = Path(compression.inner_name(path)).suffix.lower()
    if suffix not in _FORMAT_OF_SUFFIX:
        raise ValueError(
            f"{path}: the name does not say the format ({', '.join(_FORMAT_OF_SUFFIX)}, each also "
            f"with {', '.join(compression.SUFFIXES)}): state it as 'tsv', 'csv', 'jsonl' or "
            "'parquet'"
        )
    return _FORMAT_OF_SUFFIX[suffix]


def delimiter_of(name: str) -> str:
    r"""Returns the delimiter that an option names: a character, "tab", or "auto".

    Raises:
        ValueError: it is none of these.

    >>> delimiter_of(";"), delimiter_of("tab"), delimiter_of("auto")
    (';', '\t', 'auto')
    """
    delimiter = {"tab": "\t", "\\t": "\t"}.get(name, name)
    if delimiter != "auto" and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f"delimiter {name!r}: pass one character, such as ';', or tab, or auto")
    return delimiter


def named(delimiter: str) -> str:
    """Returns a delimiter's name for messages.

    >>> named(","), named("#")
    ('comma', "'#'")
    """
    return _NAMES.get(delimiter, repr(delimiter))


def read_table(
    path: str | Path,
    *,
    format: Literal["tsv", "csv"],
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the row's first line, cells) of a tab- or comma-separated file.

    Tab-separated files have no quoting (csv.QUOTE_NONE), like GLUE's: a quotation mark is text.
    Comma-separated files are quoted as in RFC 4180, and a quoted cell may contain line ends. Empty
    rows at the end are left out.

    Args:
        path: the file, plain or compressed.
        format: "tsv" or "csv".
        delimiter: a character, or "tab"; "auto" takes tabs for "tsv", and for "csv" the first of
            comma, semicolon, tab and bar that divides the first 20 rows into equally many cells, at
            least two.
        encoding: see `read_lines`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a row is empty, or does not have as many cells as the first row; a quote in a
            comma-separated file is never closed; the delimiter is invalid. See also `read_lines`.
    """
    delimiter = delimiter_of(delimiter)
    if format == "tsv":
        split = _split_plain(path, "\t" if delimiter == "auto" else delimiter, encoding)
    else:
        split = _split_quoted(path, delimiter, encoding)
    width = None
    for number, cells in without_empty_end(split):
        width = len(cells) if width is None else width
        if not any(cells):
            reject(f"{path}:{number}", "an empty row; remove it")
        elif len(cells) != width:
            hint = "" if format == "tsv" else "; quote a text that holds commas"
            reject(f"{path}:{number}", f"{len(cells)} columns, the first row has {width}{hint}")
        else:
            yield number, cells


def numbered_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields (number, line) of a file, without blank lines at its end; see `read_lines`."""
    blank: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path, encoding=encoding), start=1):
        if line.strip(" "):  # tabs separate empty cells
            yield from blank
            yield number, line
            blank = []
        else:
            blank.append((number, line))


def without_empty_end(
    rows: Iterable[tuple[int, list[str]]],
) -> Iterator[tuple[int, list[str]]]:
    """Yields rows except the last ones if all their cells are empty."""
    empty: list[tuple[int, list[str]]] = []
    for row in rows:
        if any(map(str.strip, row[1])):
            yield from empty
            yield row
            empty = []
        else:
            empty.append(row)


def read_objects(
    path: str | Path, *, format: Literal["jsonl", "parquet"] = "jsonl", encoding: str = "utf-8"
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, object) of a JSON Lines file, or of the rows of a Parquet file.

    Args:
        path: the file, plain or compressed.
        format: "jsonl": one JSON object per line, where blank lines do not matter; the number is
            the line's. "parquet": the number is the row's, from 1.
        encoding: see `read_lines`.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: Parquet needs the extra `data`.
        ValueError: a line is not a JSON object, or a string in it has half of a surrogate pair; or
            the Parquet file is damaged. See also `read_lines`.
    """
    if format == "parquet":
        yield from _read_parquet(path)
        return
    for number, line in enumerate(read_lines(path, encoding=encoding), start=1):
        if not line.strip():
            continue
        value = None
        with each_row():
            value = _object(line, f"{path}:{number}")
        if value is not None:
            yield number, value


def _object(line: str, place: str) -> dict[str, Any]:
    value = parse_json(line, place, remedy="one object per line")
    if not isinstance(value, dict):
        raise ValueError(
            f"{place}: a JSON {type(value).__name__}, not an object like "
            '{"text": "...", "label": "..."}; one object per line'
        )
    if "\\u" in line:  # only an escape can spell half of a surrogate pair
        check_json(place, value)
    return value


def _read_parquet(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    parquet = optional("pyarrow.parquet", extra="data")
    errors = optional("pyarrow", extra="data").ArrowException
    with compression.opened(path) as file:
        is_plain = Path(path).suffix.lower() not in compression.SUFFIXES
        number = 0
        try:  # Parquet's footer is at its end
            content = parquet.ParquetFile(file if is_plain else io.BytesIO(file.read()))
            for batch in content.iter_batches(batch_size=1024):
                for value in batch.to_pylist():
                    number += 1
                    yield number, value
        except (errors, OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path}: Parquet cannot be read after row {number} ({error}): fetch the file again"
            ) from error


def _split_plain(
    path: str | Path, delimiter: str, encoding: str
) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path, encoding=encoding), start=1):
        yield number, line.split(delimiter)


def _split_quoted(
    path: str | Path, delimiter: str, encoding: str
) -> Iterator[tuple[int, list[str]]]:
    lines = read_lines(path, encoding=encoding)
    head = list(itertools.islice(lines, _NUM_LINES_EXAMINED))
    start = 1
    if head and (stated := _EXCEL_LINE.fullmatch(head[0])):  # Excel states the delimiter like this
        start, head = 2, head[1:]
        delimiter = stated[1] if delimiter == "auto" else delimiter
    if delimiter == "auto":
        delimiter = next((candidate for candidate in _NAMES if _divides(head, candidate)), ",")
    yield from _parsed(path, itertools.chain(head, lines), delimiter, start)


def _divides(lines: list[str], delimiter: str) -> bool:
    """Returns whether a delimiter divides the first rows into equally many cells, at least two."""
    try:
        rows = list(itertools.islice(_parsed("", lines, delimiter, 1), _NUM_ROWS_EXAMINED))
    except ValueError:
        return False
    widths = {len(cells) for _, cells in without_empty_end(rows)}
    return len(widths) == 1 and widths != {1}


def _parsed(
    path: str | Path, lines: Iterable[str], delimiter: str, start: int
) -> Iterator[tuple[int, list[str]]]:
    # The reader needs line ends, which are part of a quoted cell that spans lines.
    reader = csv.reader((line + "\n" for line in lines), strict=True, delimiter=delimiter)
    number = start
    while True:
        try:
            cells = _next_row(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(
                f"{path}:{number}: not {named(delimiter)}-separated values ({error}); quote cells "
                'with "..." and double the quotes inside'
            ) from error
        yield number, cells
        number = start + reader.line_num


def _next_row(reader: Any) -> list[str]:
    """Returns the next row, whose cells may be of any size.

    Python's limit of 131,072 characters is the same for all readers of a process, so it is lifted
    only for the time of this call.
    """
    with _field_size_limit:
        limit = csv.field_size_limit(sys.maxsize)
        try:
            row: list[str] = next(reader)
            return row
        finally:
            csv.field_size_limit(limit)
