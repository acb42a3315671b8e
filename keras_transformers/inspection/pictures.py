"""Draws attention weights as pictures."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.inspection.attention_maps import AttentionMap
from keras_transformers.inspection.svg import FAINT

__all__ = ["attention_figure", "attention_picture", "attention_pictures", "rollout_figure"]

_SVG = "{http://www.w3.org/2000/svg}"


def attention_pictures(
    source_tokens: Iterable[Iterable[str | bytes]],
    target_tokens: Iterable[Iterable[str | bytes]],
    attention: np.ndarray,
) -> np.ndarray:
    """Draws one picture per sentence from the outputs of an export's `attend` signature.

    Args:
        source_tokens: strings or bytes (batch, source), padded with empty ones.
        target_tokens: strings or bytes (batch, target), padded with empty ones.
        attention: weights (batch, target, source).

    Returns:
        uint8 (batch, height, width, 3). See `attention_picture`.
    """
    columns = [_strings(rows) for rows in (source_tokens, target_tokens)]
    rows = zip(*columns, np.asarray(attention), strict=True)
    return np.stack([attention_picture(*row) for row in rows])


def attention_picture(
    source_tokens: Sequence[str], target_tokens: Sequence[str], attention: np.ndarray
) -> np.ndarray:
    """Draws how much each target token (row) attends to each source token (column).

    Args:
        source_tokens: names of the columns; empty ones at the end are padding and not drawn.
        target_tokens: names of the rows, padded in the same way.
        attention: weights from 0 to 1, (target, source); darker is more.

    Returns:
        uint8 (height, width, 3), 0 to 255, always the same size, so that pictures can be stacked.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: there are fewer weights than tokens.
    """
    figure = _figure(figsize=(6, 6), dpi=100)
    sources, targets = _without_padding(source_tokens), _without_padding(target_tokens)
    rows, columns = attention.shape
    if rows < len(targets) or columns < len(sources):
        raise ValueError(
            f"attention has shape {attention.shape} for {len(targets)} target and {len(sources)} "
            "source tokens: expected (target, source)"
        )
    weights = attention[: len(targets), : len(sources)]
    _draw(figure.add_subplot(), weights, sources, targets, "Blues")
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3].copy()


def attention_figure(
    found: AttentionMap, *, layer: int | None = None, head: int | None = None, dark: bool = False
) -> Any:
    """Draws one head, the heads of a layer, or all heads of all layers.

    A row is a query, a column a key; darker (with `dark`, brighter) is more.

    Args:
        found: from `attention`.
        layer: index of the layer, from 0; None for all.
        head: index of the head, from 0; None for all.
        dark: whether the background is dark.

    Returns:
        A matplotlib figure, for `savefig`. A single head is drawn with its tokens; of several, each
        has its layer and head as the title.

    Raises:
        ImportError: matplotlib is not installed.
        IndexError: there is no such layer or head.

    Example:
        found = kt.inspection.attention(pipeline, "the river bank")["encoder"]
        kt.inspection.attention_figure(found, layer=0, head=2).savefig("head.svg")
    """
    layers, heads = (
        range(count) if index is None else [index] * (0 <= index < count)
        for index, count in zip((layer, head), found.probabilities.shape[:2], strict=True)
    )
    if not (layers and heads):
        raise IndexError(
            f"layer={layer}, head={head}: there are {found.probabilities.shape[0]} layers of "
            f"{found.probabilities.shape[1]} heads, counted from 0"
        )
    panels = [[(f"layer {i}, head {j}", found.probabilities[i, j]) for j in heads] for i in layers]
    return _drawn(found, panels, dark)


def rollout_figure(found: AttentionMap, *, dark: bool = False) -> Any:
    """Draws how much of each position's last vector comes from each token: `AttentionMap.rollout`.

    A row is a position, a column a token; darker (with `dark`, brighter) is more.

    Args:
        found: from `attention`, for an encoder or a decoder, not between the two.
        dark: whether the background is dark.

    Returns:
        A matplotlib figure, for `savefig`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: queries and keys are not the same positions.

    Example:
        found = kt.inspection.attention(pipeline, "the river bank")["encoder"]
        kt.inspection.rollout_figure(found).savefig("rollout.svg")
    """
    return _drawn(found, [[("rollout", found.rollout())]], dark)


def svg_pixels(svg: str) -> np.ndarray:
    """Draws a picture of `inspection.svg` as pixels, on a light page, such as for TensorBoard.

    Args:
        svg: the file's text.

    Returns:
        uint8 (height, width, 3).

    Raises:
        ImportError: matplotlib is not installed.
    """
    from xml.etree import ElementTree

    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    figure = _figure(figsize=(width / 100, height / 100), dpi=100)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    # The rules of the light scheme come first.
    light = next(root.iter(f"{_SVG}style")).text or ""
    fills = dict(re.findall(r"^\.(\w+) \{ fill: (#\w+);", light.partition("@media")[0], re.M))
    for element in root.iter():
        _draw_element(axes, element, fills)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3].copy()


def _draw_element(axes: Any, element: Any, fills: Mapping[str, str]) -> None:
    """Draws a box, a text or a line; nothing for other elements."""
    from matplotlib.patches import Rectangle

    styles = element.get("class", "").split()
    faint = FAINT[0]
    if element.tag == f"{_SVG}rect":
        x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
        edge = "none" if "page" in styles and not x and not y else faint
        fill = fills[styles[0]]
        axes.add_patch(Rectangle((x, y), width, height, facecolor=fill, edgecolor=edge, lw=0.4))
    elif element.tag == f"{_SVG}text":
        axes.text(
            float(element.get("x")),
            float(element.get("y")),
            (element.text or "").replace("$", r"\$"),
            ha={"start": "left", "middle": "center", "end": "right"}[element.get("text-anchor")],
            fontsize=8,
            fontweight="bold" if "bold" in styles else "normal",
            color=faint if "faint" in styles else "black",
        )
    elif element.tag == f"{_SVG}path" and element.get("class") != "head":
        pairs = re.split("[ML]", element.get("d"))[1:]
        points = [tuple(map(float, pair.split())) for pair in pairs]
        axes.plot(*zip(*points, strict=True), color=faint, lw=0.8)


def _drawn(attention: AttentionMap, panels: list[list[tuple[str, np.ndarray]]], dark: bool) -> Any:
    """Returns a figure with rows of titles and weights; a single one has its tokens."""
    queries, keys = _without_padding(attention.queries), _without_padding(attention.keys)
    is_one = len(panels) == len(panels[0]) == 1
    side = 1.6 + 0.25 * max(len(queries), len(keys)) if is_one else 1.3
    figure = _figure(figsize=(side * len(panels[0]), side * len(panels) + 0.4))
    ground, ink, colors = ("#16181d", "#e8e8e8", "magma") if dark else ("white", "black", "Blues")
    figure.set_facecolor(ground)
    grid = figure.subplots(len(panels), len(panels[0]), squeeze=False)
    for axes_row, panel_row in zip(grid, panels, strict=True):
        for axes, (title, weights) in zip(axes_row, panel_row, strict=True):
            _draw(axes, weights, *((keys, queries) if is_one else ([], [])), colors)
            axes.set_title(title, fontsize=9 if is_one else 7, color=ink)
            axes.tick_params(colors=ink)
    return figure


def _figure(**options: Any) -> Any:
    """Returns a figure that needs no display.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "attention pictures need matplotlib: pip install 'keras-transformers[translation]'"
        ) from error
    figure = Figure(layout="constrained", **options)
    FigureCanvasAgg(figure)
    return figure


def _draw(
    axes: Any, weights: np.ndarray, columns: Sequence[str], rows: Sequence[str], colors: str
) -> None:
    axes.imshow(weights, cmap=colors, vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(top=bool(columns), bottom=False, labeltop=True, labelbottom=False)


def _without_padding(tokens: Sequence[str]) -> list[str]:
    texts = list(tokens)
    while texts and not texts[-1]:
        texts.pop()
    return [token.replace("$", r"\$") for token in texts]  # matplotlib reads $...$ as math


def _strings(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    rows = np.asarray(rows, dtype=object)
    return [[t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in r] for r in rows]
