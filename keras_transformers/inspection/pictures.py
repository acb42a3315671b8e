"""Attention weights as pictures."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["attention_picture", "attention_pictures"]


def attention_pictures(source_tokens: Any, target_tokens: Any, attention: Any) -> np.ndarray:
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
    """Draws how much each target token (row) attends to each source token (column): darker is more.

    Args:
        source_tokens: names of the columns; empty ones at the end are padding and not drawn.
        target_tokens: names of the rows, padded likewise.
        attention: weights from 0 to 1, (target, source).

    Returns:
        uint8 (height, width, 3), 0 to 255, always the same size, so that pictures can be stacked.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: fewer weights than tokens.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "attention pictures need matplotlib: pip install 'keras-transformers[translation]'"
        ) from error
    sources, targets = _without_padding(source_tokens), _without_padding(target_tokens)
    rows, columns = attention.shape
    if rows < len(targets) or columns < len(sources):
        raise ValueError(
            f"attention has shape {attention.shape} for {len(targets)} target and {len(sources)} "
            "source tokens: expected (target, source)"
        )
    figure = Figure(figsize=(6, 6), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.imshow(attention[: len(targets), : len(sources)], cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(sources)), sources, rotation=90)
    axes.set_yticks(range(len(targets)), targets)
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _without_padding(tokens: Sequence[str]) -> list[str]:
    found = list(tokens)
    while found and not found[-1]:
        found.pop()
    return [token.replace("$", r"\$") for token in found]  # matplotlib reads $...$ as math


def _strings(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    rows = np.asarray(rows, dtype=object)
    return [[t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in r] for r in rows]
