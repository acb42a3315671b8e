"""Holds a report: findings in words, figures, tables and pictures; shows and writes it."""

import base64
import dataclasses
import html
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size

from keras_transformers import files
from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.inspection.svg import Picture, printable

__all__ = ["Report", "ReportTable"]

Cell = str | int | float | None

_WIDTH = 100  # columns of a terminal
_LEAST_TEXT = 8  # characters that a column of texts keeps
_LONGEST_TEXT = 300  # characters of a text in a table
_MOST_COLUMNS = 25  # of a table in a notebook
_NUM_NAMES = 8  # names in a sentence


@dataclasses.dataclass(frozen=True)
class ReportTable:
    """A table of a report.

    Attributes:
        title: what it shows.
        columns: the headings; the first column names the rows.
        rows: the cells of each row: strings, numbers, or None for an empty cell.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    @property
    def fits_a_page(self) -> bool:
        """Whether it has rows, and no more columns than a page has room for."""
        return bool(self.rows) and len(self.columns) <= _MOST_COLUMNS

    def lines(self, width: int = _WIDTH) -> list[str] | None:
        """Returns the table for a terminal, with long texts shortened; None if it is too wide.

        Args:
            width: columns of the terminal.
        """
        cells = [self.columns, *([shown(cell) for cell in row] for row in self.rows)]
        columns = list(zip(*cells, strict=True))
        is_text = [any(isinstance(row[i], str) for row in self.rows) for i in range(len(columns))]
        widths = [max(map(cell_len, column)) for column in columns]
        room = width - 2 * (len(columns) - 1)
        while sum(widths) > room:
            widest = max((w, i) for i, w in enumerate(widths) if is_text[i] or not i)[1]
            if widths[widest] <= _LEAST_TEXT:
                return None
            widths[widest] -= 1
        lines = []
        for row in cells:
            parts = []
            for cell, size, text in zip(row, widths, is_text, strict=True):
                if cell_len(cell) > size:
                    cell = f"{set_cell_size(cell, size - 1).rstrip()}…"
                space = " " * (size - cell_len(cell))
                parts.append(cell + space if text else space + cell)
            lines.append("  ".join(parts).rstrip())
        return lines

    def to_html(self) -> str:
        """Returns the table as HTML."""
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(shown(cell))}</td>' for cell in row)}</tr>"
            for row in self.rows
        )
        return (
            f"<table><caption>{html.escape(self.title)}</caption><thead><tr>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a task's practitioners print about a model's answers to a data set.

    `print(report)` shows it in a terminal; a notebook shows it with its pictures.

    Attributes:
        title: the task and how much data.
        findings: what a reader should know first, in sentences.
        figures: name -> number.
        tables: name -> table; the first is the main one.
        drawings: name -> function that draws a picture, for `svg`.

    Example:
        report = kt.evaluate(classify, (texts, labels)).report
        print(report)
        report.to_frame().sort_values("f1")
    """

    title: str
    findings: Sequence[str]
    figures: Mapping[str, float]
    tables: Mapping[str, ReportTable]
    drawings: Mapping[str, Callable[[], Picture]] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        """Returns the report for a terminal of 100 columns."""
        findings = [_wrapped(finding) for finding in self.findings]
        figures = _wrapped(", ".join(f"{name} {shown(x)}" for name, x in self.figures.items()))
        tables = [self._in_terminal(name) for name, table in self.tables.items() if table.rows]
        return "\n\n".join(["\n".join([self.title, *findings]), figures, *tables])

    __repr__ = __str__

    def _in_terminal(self, name: str) -> str:
        table = self.tables[name]
        lines = table.lines()
        if lines is None:
            return f"{table.title}: too wide here; see to_frame({name!r})"
        return "\n".join([f"{table.title}:", *lines])

    def _repr_html_(self) -> str:
        """Returns the report for a notebook."""
        findings = "".join(f"<li>{html.escape(finding)}</li>" for finding in self.findings)
        figures = ", ".join(f"{name} {shown(x)}" for name, x in self.figures.items())
        tables = "".join(table.to_html() for table in self.tables.values() if table.fits_a_page)
        # In an image, so that the styles of the picture do not reach the page.
        pictures = "".join(
            f'<img alt="{html.escape(name)}" src="data:image/svg+xml;base64,'
            f'{base64.b64encode(self.svg(name).encode()).decode()}">'
            for name in self.pictures
        )
        title = html.escape(self.title)
        return (
            f"<p><b>{title}</b></p><ul>{findings}</ul><p>{html.escape(figures)}</p>"
            f"{tables}<p>{pictures}</p>"
        )

    def to_frame(self, table: str | None = None) -> Any:
        """Returns a table as a pandas DataFrame, whose index is the first column.

        Args:
            table: one of `tables`; the main one by default.

        Raises:
            MissingExtraError: pandas is not installed.
            ValueError: there is no such table.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            remedy = "to_frame needs pandas: pip install pandas, or use to_dict"
            raise MissingExtraError(remedy, name="pandas") from error
        chosen = self.tables[_checked(table or next(iter(self.tables)), self.tables, "table")]
        frame = pandas.DataFrame(chosen.rows, columns=list(chosen.columns))
        return frame.set_index(chosen.columns[0])

    def to_dict(self) -> dict[str, Any]:
        """Returns all but the pictures as JSON values; numbers that are not finite are None."""
        return {
            "title": self.title,
            "findings": list(self.findings),
            "figures": {name: _finite(value) for name, value in self.figures.items()},
            "tables": {
                name: {
                    "title": table.title,
                    "columns": list(table.columns),
                    "rows": [[_finite(cell) for cell in row] for row in table.rows],
                }
                for name, table in self.tables.items()
            },
        }

    def to_json(self) -> str:
        """Returns `to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    @property
    def pictures(self) -> tuple[str, ...]:
        """The names of the pictures."""
        return tuple(self.drawings)

    def svg(self, picture: str) -> str:
        """Returns a picture as an SVG file's text, for light and dark pages.

        Args:
            picture: one of `pictures`.

        Raises:
            ValueError: there is no such picture.
        """
        return str(self.drawings[_checked(picture, self.drawings, "picture")]())

    def save(self, folder: str | os.PathLike[str], *, name: str = "report") -> Path:
        """Writes <name>.json, <name>.txt and <name>_<picture>.svg to a folder, and returns it.

        Args:
            folder: an existing folder, whose files of these names are replaced, or a new one.
            name: the start of the files' names.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        files.write_json(place / f"{name}.json", self.to_dict())
        files.write_lines(place / f"{name}.txt", str(self).split("\n"))
        for picture in self.pictures:
            files.write_lines(place / f"{name}_{picture}.svg", self.svg(picture).split("\n"))
        return place


def shown(value: Cell) -> str:
    """Returns a cell as text on one line.

    >>> shown(0.28354), shown(12), shown(None), shown(1234.5678)
    ('0.2835', '12', '', '1235')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 100 or math.isnan(value) else f"{value:.4g}"
    return printable(str(value))


def on_one_line(text: str) -> str:
    r"""Returns a text for a cell: on one line, printable, and cut if it is long.

    >>> on_one_line("a  warm\n\x1b[31mfilm")
    'a warm �[31mfilm'
    """
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def listed(names: Sequence[str]) -> str:
    """Returns names for a sentence.

    >>> listed([*"abcdefghij"])
    'a, b, c, d, e, f, g, h and 2 more'
    """
    more = len(names) - _NUM_NAMES
    return printable(", ".join(names[:_NUM_NAMES])) + (f" and {more} more" if more > 0 else "")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Returns a count with its noun.

    >>> counted(1, "class", "classes"), counted(2, "label")
    ('1 class', '2 labels')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _wrapped(sentence: str) -> str:
    lines, line = [], ""
    for word in sentence.split(" "):
        if line and cell_len(line) + 1 + cell_len(word) > _WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def _finite(value: Cell) -> Cell:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _checked(name: str, names: Mapping[str, Any], what: str) -> str:
    if name not in names:
        raise ValueError(f"{what} {name!r}: the report has {', '.join(names) or 'none'}")
    return name
