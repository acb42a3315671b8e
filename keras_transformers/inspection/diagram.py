"""Draws a model: its blocks as in a paper's figure, or every layer."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import keras

from keras_transformers.dependencies.extras import MissingExtraError, optional
from keras_transformers.files import replaced
from keras_transformers.inspection.blocks import Block, Part, model_blocks
from keras_transformers.inspection.svg import Picture, Point

__all__ = ["Level", "plot"]

Level = Literal["block", "layer"]

# Pixels.
_WIDTH = 330  # of a block
_LINE = 40  # height of a block without parts
_PART, _NORM, _END = 36, 24, 26  # heights of parts, norms, and the model's inputs and outputs
_LEFT, _RIGHT = 30, 10  # from a block's edge to its parts; residual connections run at the left
_GAP = 26  # between blocks, for the arrows
_STEP, _FORK = 14, 22  # between the parts of a block, and where a residual connection leaves
_MARGIN = 24
_NORM_FIRST = ("pre", "both")
_HEADER = 64  # around the picture


def plot(model: keras.Model, path: str | os.PathLike[str], level: Level = "block") -> None:
    """Draws a model and writes the picture.

    Args:
        model: a functional model.
        path: the file to write or replace. Blocks are drawn as SVG, which follows the reader's
            choice of a light or dark page; layers in the format of the suffix: .svg, .png or .pdf.
        level: "block" draws the model like its paper, from inputs at the bottom to outputs at the
            top, with equal layers once ("12 x") and exact counts of parameters. "layer" draws every
            layer with its shapes (`keras.utils.model_to_dot`, laid out by Graphviz).

    Raises:
        MissingExtraError: `level="layer"` needs pydot and pygraphviz, which includes Graphviz.
        ValueError: the level is unknown, or the name does not end in a format of that level.

    Example:
        kt.inspection.plot(kt.bert_base(), "bert.svg")
    """
    if level not in get_args(Level):
        raise ValueError(f"level={level!r} is unknown: use 'block' or 'layer'")
    formats = (".svg",) if level == "block" else (".svg", ".png", ".pdf")
    if Path(path).suffix not in formats:
        raise ValueError(
            f"{os.fspath(path)}: a picture of level {level!r} must be a {' or '.join(formats)} "
            "file; choose such a name"
        )
    picture = _layers(model, Path(path).suffix) if level == "layer" else _blocks(model)
    with replaced(path) as scratch:
        scratch.write_bytes(picture)


def _layers(model: keras.Model, suffix: str) -> bytes:
    """Returns the picture of all layers."""
    try:
        optional("pydot", extra="plot")  # `model_to_dot` uses it
        pygraphviz = optional("pygraphviz", extra="plot")
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{error}; or draw the level 'block', which does not need it", name=error.name
        ) from None
    graph = keras.utils.model_to_dot(
        model, show_shapes=True, show_layer_names=True, show_layer_activations=True, dpi=72
    )
    laid_out = pygraphviz.AGraph(string=graph.to_string())
    return bytes(laid_out.draw(format=suffix.removeprefix("."), prog="dot"))


@dataclass
class _Place:
    """Holds a block's place. `y` grows upwards, from the inputs to the outputs."""

    x: float
    y: float
    height: float

    @property
    def top(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + _WIDTH / 2

    def overlaps(self, other: "_Place", dx: float) -> bool:
        """Returns whether the two, with one moved to the right, are closer than blocks may be."""
        return abs(self.x + dx - other.x) < _WIDTH + 2 * _GAP and (
            self.y < other.top + _GAP and other.y < self.top + _GAP
        )


def _blocks(model: keras.Model) -> bytes:
    """Returns the picture of a model's blocks."""
    blocks = model_blocks(model)
    places = _places(blocks)
    width = max(place.x for place in places) + _WIDTH + 2 * _MARGIN
    height = max(place.top for place in places) + _HEADER + _MARGIN
    picture = Picture(width, height, title=f"{model.name}, block by block")
    picture.text(_MARGIN, 26, model.name, style="large bold")
    picture.text(_MARGIN, 46, f"{model.count_params():,} parameters", style="faint")

    def on_page(points: Sequence[Point]) -> list[Point]:
        return [(x + _MARGIN, height - _MARGIN - y) for x, y in points]

    for block, place in zip(blocks, places, strict=True):
        _draw(picture, block, *on_page([(place.x, place.top)])[0])
    for block, place in zip(blocks, places, strict=True):
        for line in _lines(block, place, places):
            picture.arrow(on_page(line))
    return str(picture).encode()


def _places(blocks: Sequence[Block]) -> list[_Place]:
    """Puts each block above its inputs, and branches beside each other."""
    root = _roots(blocks)
    places: list[_Place] = []
    for block in blocks:
        below = [join for join, _ in block.joins if root[join] == root[len(places)]]
        below += [] if block.source is None else [block.source]
        y = max((places[index].top + _GAP for index in below), default=0)
        places.append(_Place(0, y, _height(block)))
    put: list[_Place] = []
    for index, block in enumerate(blocks):
        if block.source is None:
            _put(index, 0, blocks, places, put)
    return places


def _roots(blocks: Sequence[Block]) -> list[int]:
    """Returns for each block the input that it continues."""
    roots: list[int] = []
    for index, block in enumerate(blocks):
        roots.append(index if block.source is None else roots[block.source])
    return roots


def _put(
    index: int, x: float, blocks: Sequence[Block], places: Sequence[_Place], put: list[_Place]
) -> None:
    """Puts a block and the longest line above it as far left as possible, then its branches."""
    line = [index]
    while branches := [i for i, block in enumerate(blocks) if block.source == line[-1]]:
        line.append(max(branches, key=lambda i: _reach(i, blocks, places)))
    dx = x
    while any(places[i].overlaps(other, dx) for i in line for other in put):
        dx += _GAP
    for i in line:
        places[i].x += dx
        put.append(places[i])
    for i in reversed(line):
        for branch, block in enumerate(blocks):
            if block.source == i and branch not in line:
                _put(branch, dx, blocks, places, put)


def _reach(index: int, blocks: Sequence[Block], places: Sequence[_Place]) -> float:
    """Returns how high the blocks above a block reach."""
    above = (i for i, block in enumerate(blocks) if block.source == index)
    return max([places[index].top, *(_reach(i, blocks, places) for i in above)])


def _rows(block: Block) -> Iterator[tuple[str, Part, float]]:
    """Yields the contents of a block's drawing, from the bottom: ("norm", part, height), ..."""
    for part in block.parts:
        if part.norm in _NORM_FIRST:
            yield "norm", part, _NORM
        yield "part", part, _PART
        if part.norm in ("output", "both"):
            yield "norm", part, _NORM
        if part.norm:
            yield "add & norm" if part.norm == "post" else "add", part, _NORM


def _height(block: Block) -> float:
    if block.kind != "layer":
        return _END
    if not block.parts:
        return _LINE
    inside = sum(height + _inset(name, part) for name, part, height in _rows(block))
    return _LINE + inside


def _inset(name: str, part: Part) -> float:
    """Returns the space below a row; a residual connection starts below its sub-layer."""
    starts = name == "norm" if part.norm in _NORM_FIRST else name == "part"
    return _FORK if starts and part.norm else _STEP


def _entry(block: Block, part_name: str) -> float:
    """Returns how far above a block's lower edge an arrow to one of its parts enters."""
    y = 0.0
    for name, part, height in _rows(block):
        y += _inset(name, part) + height
        if name == "part" and part.name == part_name:
            return y - height / 2
    return _height(block) / 2


def _lines(block: Block, place: _Place, places: Sequence[_Place]) -> Iterator[list[Point]]:
    """Yields the arrows that lead to a block."""
    if block.source is not None:
        below = places[block.source]
        if any(below.x == other.x == place.x and below.y < other.y < place.y for other in places):
            turn, up = place.x - _GAP * 0.5, place.y - _GAP * 0.35
            yield [*_around(below, turn, (place.middle, up)), (place.middle, place.y)]
        elif below.x == place.x:
            yield [(below.middle, below.top), (place.middle, place.y)]
        else:
            bend = below.top + _GAP / 2
            corner = [(below.middle, bend), (place.middle, bend)]
            yield [(below.middle, below.top), *corner, (place.middle, place.y)]
    for join, part in block.joins:
        beside = places[join]
        y = place.y + _entry(block, part)
        is_left = beside.x < place.x
        edge = place.x if is_left else place.x + _WIDTH
        inside = (_LEFT if is_left else -_RIGHT) if part else 0
        yield _around(beside, edge + (-_GAP if is_left else _GAP) * 0.8, (edge + inside, y))


def _around(start: _Place, turn: float, end: Point) -> list[Point]:
    """Returns a line out of the top of a block, to the gap at `turn`, and along it to the end."""
    up = start.top + _GAP * 0.35
    corners = [(start.middle, up), (turn, up), (turn, end[1])]
    return [(start.middle, start.top), *corners, end]


def _draw(picture: Picture, block: Block, x: float, y: float) -> None:
    """Draws a block, given its upper left corner."""
    name = block.name.replace("_", " ")
    if block.kind != "layer":
        label = f"{block.name}: {block.sizes}" if block.sizes else block.name
        picture.box(x + _LEFT, y, _WIDTH - 2 * _LEFT, _END, "end", radius=_END / 2)
        picture.text(x + _WIDTH / 2, y + 17, label, anchor="middle")
        return
    total = block.count * block.num_parameters
    picture.box(x, y, _WIDTH, _height(block), "frame" if block.parts else block.look)
    title = f"{block.count} \u00d7 {name}" if block.count > 1 else name
    detail = f"{block.num_parameters:,} each" if block.count > 1 else block.sizes
    count = "the same weights" if block.is_shared else f"{total:,}" if total else ""
    _label(picture, x, y, _WIDTH, title, detail, count)
    bottom = y + _height(block)
    left, width = x + _LEFT, _WIDTH - _LEFT - _RIGHT
    fork = bottom
    for row, part, height in _rows(block):
        gap = _inset(row, part)
        if part.norm:
            picture.arrow([(x + _WIDTH / 2, bottom), (x + _WIDTH / 2, bottom - gap)])
        fork = bottom - gap / 2 if gap == _FORK else fork
        bottom -= gap + height
        picture.box(left, bottom, width, height, part.look if row == "part" else "norm")
        if row == "part":
            words = part.name.replace("_", " "), part.sizes, f"{part.num_parameters:,}"
            _label(picture, left, bottom - 2, width, *words)
            continue
        in_each = part.norm_parameters // (2 if part.norm == "both" else 1)
        count = f"{in_each:,}" if "norm" in row else ""
        _label(picture, left, bottom - 8, width, row, "", count)
        if row.startswith("add"):
            turn, end = x + _LEFT / 2, bottom + height / 2
            picture.arrow([(x + _WIDTH / 2, fork), (turn, fork), (turn, end), (left, end)])


def _label(
    picture: Picture, x: float, y: float, width: float, title: str, detail: str, count: str
) -> None:
    """Writes a name, the text below it and a count at the right."""
    picture.text(x + 8, y + (17 if detail else 24), title, style="bold")
    if detail:
        picture.text(x + 8, y + 32, detail, style="faint")
    picture.text(x + width - 8, y + (17 if detail else 24), count, anchor="end")
