"""Writes SVG pictures that follow the reader's choice of a light or dark page."""

from collections.abc import Mapping, Sequence
from typing import ClassVar
from unicodedata import category
from xml.sax.saxutils import escape, quoteattr

# On light pages, on dark ones.
_INK = ("#1b1b1b", "#e8e8e8")
FAINT = ("#5c5c5c", "#a9adb5")

Point = tuple[float, float]

_NOT_SHOWN = ("Cc", "Cs")  # Unicode's categories


class Picture:
    """Draws a picture. Coordinates are in pixels, from the upper left corner.

    Args:
        width: width of the picture.
        height: height of the picture.
        title: text that screen readers read aloud.

    Attributes:
        colors: fill colours by class, on light pages and on dark ones.
        zoom: how much larger the picture is on a page that has room for it.

    Example:
        >>> picture = Picture(40, 20, title="a box")
        >>> picture.box(5, 5, 30, 10, "plain")
        >>> picture.text(20, 12, "768", anchor="middle")
        >>> str(picture).count("<rect")
        2
    """

    colors: ClassVar[Mapping[str, tuple[str, str]]] = {
        "page": ("#ffffff", "#16181d"),
        "frame": ("#f3f3f3", "#22262e"),
        "plain": ("#e3e6ea", "#333a45"),
        "embedding": ("#f6dede", "#573638"),
        "attention": ("#fbe3c2", "#5b4423"),
        "norm": ("#f1f3c1", "#4b4d24"),
        "feed_forward": ("#c9e7f5", "#224a5d"),
        "end": ("#ffffff", "#16181d"),
    }
    zoom: ClassVar[float] = 1.0

    def __init__(self, width: float, height: float, *, title: str) -> None:
        self._size = width, height
        self._title = title
        self._elements: list[str] = []
        self.box(0, 0, width, height, "page", radius=0)

    def box(
        self, x: float, y: float, width: float, height: float, color: str, *, radius: float = 5
    ) -> None:
        """Draws a rectangle.

        Args:
            x: left edge.
            y: upper edge.
            width: width of the rectangle.
            height: height of the rectangle.
            color: one of `colors`.
            radius: radius of the corners.
        """
        if color not in self.colors:
            raise ValueError(f"color {color!r} is unknown: use one of {', '.join(self.colors)}")
        size = f'width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self._elements.append(f'<rect class="{color}" x="{x:g}" y="{y:g}" {size}/>')

    def text(
        self, x: float, y: float, words: str, *, style: str = "", anchor: str = "start"
    ) -> None:
        """Writes one line.

        Args:
            x: where the line starts, or with `anchor` its middle or end.
            y: the baseline.
            words: the text.
            style: "" or several of "bold", "faint", "large", with spaces.
            anchor: "start", "middle" or "end".
        """
        kind = f" class={quoteattr(style)}" if style else ""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._elements.append(f"<text{kind} {place}>{escape(words)}</text>")

    def arrow(self, points: Sequence[Point]) -> None:
        """Draws a line through the points, with a head at the last one."""
        self._elements.append(f'<path d="{_path(points)}" marker-end="url(#head)"/>')

    def line(self, points: Sequence[Point]) -> None:
        """Draws a line through the points."""
        self._elements.append(f'<path d="{_path(points)}"/>')

    def __str__(self) -> str:
        """Returns the file's text."""
        width, height = self._size
        size = f'width="{self.zoom * width:g}" height="{self.zoom * height:g}"'
        light, dark = ("\n".join(self.rules(scheme)) for scheme in (0, 1))
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
                f'viewBox="0 0 {width:g} {height:g}" role="img" '
                f"aria-label={quoteattr(self._title)}>",
                f"<title>{escape(self._title)}</title>",
                f"<style>\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}",
                "</style>",
                '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
                'markerHeight="8" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker>',
                *self._elements,
                "</svg>",
                "",
            ]
        )

    def rules(self, scheme: int) -> list[str]:
        """Returns the rules of the style sheet of the light (0) or dark (1) scheme."""
        ink, faint = _INK[scheme], FAINT[scheme]
        fills = [f".{name} {{ fill: {colors[scheme]}; }}" for name, colors in self.colors.items()]
        return [
            *fills,
            f"rect {{ stroke: {faint}; }}",
            ".page { stroke: none; }",
            f"text {{ fill: {ink}; font: 12px sans-serif; }}",
            ".bold { font-weight: bold; }",
            ".large { font-size: 16px; }",
            f".faint {{ fill: {faint}; }}",
            f"path {{ fill: none; stroke: {faint}; }}",
            f".head {{ fill: {faint}; stroke: none; }}",
        ]


def between(first: str, last: str, share: float) -> str:
    """Returns a colour between two, such as "#ffffff" and "#000000"."""
    pairs = [(int(first[i : i + 2], 16), int(last[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def printable(text: str) -> str:
    """Replaces control characters, which terminals obey, and halves of surrogate pairs."""
    return "".join("\ufffd" if category(char) in _NOT_SHOWN else char for char in text)


def _path(points: Sequence[Point]) -> str:
    (x, y), *others = points
    return f"M{x:g} {y:g}" + "".join(f" L{x:g} {y:g}" for x, y in others)
