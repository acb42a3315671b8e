"""What the pictures of the tutorials are drawn with, on top of the pictures of `plot`.

A picture is 340 wide, about the column of text on a phone, where its text of 12 pixels stays
legible; wider pages show it larger. Series have the colours of the charts.
"""

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np
from charts import BLUE, DARK, GREEN, ORANGE

from keras_transformers.inspection.svg import Picture, Point

WIDTH = 340
_LINE = 15  # between two lines of text
_BASE = 4  # from the middle of a line of text down to its baseline
_SERIES = {"blue": (BLUE, ""), "orange": (ORANGE, "6 3"), "green": (GREEN, "2 3")}
_RAISED = re.compile(r"\^(\w)(.*)")  # W^Q
_SHADE = 0.55  # of a weight of 1; numbers stay legible on it


class Drawing(Picture):
    """A picture of a tutorial, drawn from the top. Coordinates are in pixels at the phone's size.

    Args:
        height: height of the picture.
        title: text that screen readers read aloud.
    """

    colors = {
        **Picture.colors,
        **{name: (color, DARK[color]) for name, (color, _) in _SERIES.items()},
    }
    zoom = 1.4

    def __init__(self, height: float, title: str) -> None:
        super().__init__(WIDTH, height, title=title)

    def words(
        self, x: float, y: float, words: str, style: str = "", anchor: str = "middle"
    ) -> None:
        """Writes lines around the height `y`; `x` is their middle, or what `anchor` says.

        A letter after "^" is raised, one of them in a line.
        """
        lines = words.split("\n")
        for place, line in enumerate(lines):
            below = (place - (len(lines) - 1) / 2) * _LINE + _BASE
            self.text(x, y + below, line, style=style, anchor=anchor)
            raised = r'<tspan class="small" dy="-4">\1</tspan><tspan dy="4">\2</tspan>'
            body, _, end = self._elements[-1].rpartition("</text>")
            self._elements[-1] = f"{_RAISED.sub(raised, body)}</text>{end}"

    def turned(self, x: float, y: float, words: str) -> None:
        """Writes a word upwards from (x, y)."""
        self._elements.append(
            f'<text class="faint" transform="translate({x + _BASE:g} {y:g}) rotate(-90)">'
            f"{escape(words)}</text>"
        )

    def node(
        self,
        place: Point,
        size: tuple[float, float],
        words: str,
        color: str = "plain",
        style: str = "",
    ) -> None:
        """Draws a box with words in its middle; `place` is the middle of the box."""
        (x, y), (width, height) = place, size
        self.box(x - width / 2, y - height / 2, width, height, color)
        self.words(x, y, words, style)

    def ring(self, place: Point, words: str = "+", color: str = "end", radius: float = 9) -> None:
        """Draws a circle with words in its middle."""
        x, y = place
        self._elements.append(
            f'<circle class="{color}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>'
        )
        self.words(x, y, words)

    def line(self, points: Sequence[Point], style: str = "") -> None:
        """Draws a line without a head: thin, "dashed", or a series' colour."""
        path = "L".join(f"{round(x, 1):g} {round(y, 1):g} " for x, y in points)
        kind = f' class="line-{style}"' if style else ""
        self._elements.append(f'<path{kind} d="M{path.strip()}"/>')

    def shade(
        self, x: float, y: float, size: tuple[float, float], weight: float, color: str = "blue"
    ) -> None:
        """Draws a cell, the darker the larger the weight, from 0 to 1."""
        self.box(x, y, *size, "end", radius=0)
        if opacity := round(_SHADE * weight, 2):
            place = f'x="{x:g}" y="{y:g}" width="{size[0]:g}" height="{size[1]:g}"'
            self._elements.append(
                f'<rect class="{color} shade" {place} fill-opacity="{opacity:g}"/>'
            )

    def table(
        self,
        x: float,
        y: float,
        weights: Sequence[Sequence[float]] | np.ndarray,
        cell: tuple[float, float],
        *,
        words: Sequence[Sequence[str]] | None = None,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        color: str = "blue",
    ) -> None:
        """Draws shaded cells from the upper left corner, with words in them, and headings."""
        width, height = cell
        for j, name in enumerate(columns):
            self.words(x + (j + 0.5) * width, y - 9, name, "faint")
        for i, row in enumerate(weights):
            if rows:
                self.words(x - 6, y + (i + 0.5) * height, rows[i], "faint", "end")
            for j, weight in enumerate(row):
                left, top = x + j * width, y + i * height
                self.shade(left, top, cell, float(weight), color)
                if words is not None:
                    self.words(left + width / 2, top + height / 2, words[i][j])

    def bars(
        self,
        x: float,
        y: float,
        shares: Sequence[float],
        names: Sequence[str],
        *,
        width: float,
        color: str = "blue",
        row: float = 18,
        shown: str = "{:.2f}",
    ) -> None:
        """Draws a bar per share, 0 to 1 of the width, with its name and value; 0 stays empty."""
        for i, (share, name) in enumerate(zip(shares, names, strict=True)):
            middle = y + (i + 0.5) * row
            self.words(x - 6, middle, name, "" if share else "faint", "end")
            if share:
                length = round(width * float(share), 1)
                self._elements.append(
                    f'<rect class="{color} shade" x="{x:g}" y="{middle - row / 2 + 2:g}" '
                    f'width="{length:g}" height="{row - 4:g}" fill-opacity="{_SHADE}"/>'
                )
                self.words(x + length + 5, middle, shown.format(float(share)), "", "start")

    def rules(self, scheme: int) -> list[str]:
        """Returns the rules of the style sheet, with those of lines and circles."""
        stroke = next(rule for rule in super().rules(scheme) if rule.startswith("rect "))
        return [
            *super().rules(scheme),
            stroke.replace("rect", "circle"),
            ".shade { stroke: none; }",
            ".small { font-size: 11px; }",
            ".line-dashed { stroke-dasharray: 3 3; }",
            *(
                f".line-{name} {{ stroke: {self.colors[name][scheme]}; stroke-width: 2; "
                f"stroke-dasharray: {dashes or 'none'}; }}"
                for name, (_, dashes) in _SERIES.items()
            ),
        ]
