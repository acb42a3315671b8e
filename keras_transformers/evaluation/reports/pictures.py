"""Draws a report's pictures as SVG: a confusion matrix and a reliability diagram."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from keras_transformers.inspection.svg import Picture, between, printable

__all__: list[str] = []

_NUM_SHADES = 9
_LETTER = 7  # pixels of a character, on average
_MOST_LETTERS = 24  # of a class' name
_MANY = 20  # classes whose cells have no room for their counts


class _Chart(Picture):
    """A picture whose boxes have one of several shades, from "shade0" to "shade8"."""

    # The strongest ones still show the text on them, on light pages and on dark ones.
    colors: ClassVar[Mapping[str, tuple[str, str]]] = {
        **Picture.colors,
        **{
            f"shade{i}": (
                between("#ffffff", "#79aee6", i / (_NUM_SHADES - 1)),
                between("#16181d", "#2b6aa8", i / (_NUM_SHADES - 1)),
            )
            for i in range(_NUM_SHADES)
        },
    }

    def rules(self, scheme: int) -> list[str]:
        """Returns the rules of the style sheet, with thin borders between shades."""
        shades = [f".shade{i}" for i in range(_NUM_SHADES)]
        return [*super().rules(scheme), f"{', '.join(shades)} {{ stroke-opacity: 0.3; }}"]


def confusion_picture(
    matrix: np.ndarray, rows: Sequence[str], columns: Sequence[str] | None = None
) -> Picture:
    """Draws how often each expected class (row) was answered with each class (column).

    Args:
        matrix: counts (rows, columns). A cell's shade is its share of the row.
        rows: the names of the rows.
        columns: the names of the columns; those of the rows by default.
    """
    columns = rows if columns is None else columns
    is_large = len(columns) > _MANY
    side = 14 if is_large else 34
    names = [_short(name) for name in rows]
    left = 16 + _LETTER * max(map(len, names), default=0) + 30
    top, height = 62, side * len(rows)
    others = [name for name in columns if name not in rows]
    notes = [f"{columns.index(name) + 1}: {name}" for name in others]
    width = max(left + side * len(columns) + 16, 470)
    picture = _Chart(width, top + height + 24 + 16 * len(notes), title="confusion matrix")
    picture.text(16, 24, "Confusion matrix", style="bold")
    picture.text(
        16, 42, "Rows: expected. Columns: predicted. Shade: share of the row.", style="faint"
    )
    step = 5 if is_large else 1
    for j in range(len(columns)):
        if (j + 1) % step == 0 or j == 0:
            middle = left + side * (j + 0.5)
            picture.text(middle, top - 4, str(j + 1), style="faint", anchor="middle")
    picture.box(left, top, side * len(columns), side * len(rows), "shade0", radius=0)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    for i, name in enumerate(names):
        base = top + side * (i + 0.5) + 4
        picture.text(left - 30, base, name, anchor="end")
        picture.text(left - 6, base, str(i + 1), style="faint", anchor="end")
        for j in range(len(columns)):
            if is_large and not matrix[i, j]:
                continue
            shade = round(float(shares[i, j]) * (_NUM_SHADES - 1))
            x, y = left + side * j, top + side * i
            picture.box(x, y, side, side, f"shade{shade}", radius=0)
            if not is_large and matrix[i, j]:
                picture.text(x + side / 2, base, str(int(matrix[i, j])), anchor="middle")
    for number, note in enumerate(notes):
        picture.text(16, top + height + 20 + 16 * number, note, style="faint")
    return picture


def reliability_picture(counts: np.ndarray, accuracy: np.ndarray, error: float) -> Picture:
    """Draws the share of right answers in bins of confidence, beside the diagonal.

    Args:
        counts: answers in each bin (bins,).
        accuracy: the share of right ones (bins,).
        error: the expected calibration error.
    """
    side, left, top = 300, 60, 80
    picture = _Chart(left + side + 40, top + side + 56, title="reliability diagram")
    picture.text(16, 24, "Reliability", style="bold")
    picture.text(
        16, 42, f"Expected calibration error {error:.4f}. Darker: more answers.", style="faint"
    )
    picture.box(left, top, side, side, "frame", radius=0)
    width = side / len(counts)
    most = max(int(counts.max()), 1)
    for i, (count, share) in enumerate(zip(counts.tolist(), accuracy.tolist(), strict=True)):
        if count:
            height = max(side * share, 1)
            shade = 3 + round(5 * count / most)
            picture.box(
                left + width * i, top + side - height, width, height, f"shade{shade}", radius=0
            )
    picture.line([(left, top + side), (left + side, top)])
    for mark in (0.0, 0.5, 1.0):
        picture.text(
            left + side * mark, top + side + 18, f"{mark:g}", style="faint", anchor="middle"
        )
        picture.text(
            left - 8, top + side * (1 - mark) + 4, f"{mark:g}", style="faint", anchor="end"
        )
    picture.text(left + side / 2, top + side + 40, "probability of the answer", anchor="middle")
    picture.text(left, top - 6, "share of right answers", style="faint")
    return picture


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
