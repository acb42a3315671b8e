"""Formats Markdown tables for TensorBoard's tab "Text"."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LONGEST = 300  # characters of a cell


def markdown_table(columns: Mapping[str, Sequence[Any]]) -> str:
    r"""Returns a table with one row per value of the columns.

    Args:
        columns: heading -> values: strings, bytes, numbers or nested lists of these.

    Example:
        >>> print(markdown_table({"text": ["a|b", "c"], "score": [0.25, 2.0]}))
        | text | score |
        |---|---|
        | a\|b | 0.25 |
        | c | 2 |
    """
    lines = [_line(columns), "|" + "---|" * len(columns)]
    lines += [_line(map(cell, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines)


def cell(value: object) -> str:
    """Returns a value as the text of a cell, shortened if it is long."""
    if isinstance(value, bytes) and _is_binary(value):
        return f"({len(value):,} bytes)"
    text = " ".join(_text(value).split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} ..."
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))  # shown literally


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        parts = [f"({_text(part)})" if isinstance(part, list) else _text(part) for part in value]
        return (" " if all(isinstance(part, str) for part in value) else ", ").join(parts)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _is_binary(value: bytes) -> bool:
    """Returns whether bytes are not text, such as an encoded image."""
    return b"\0" in value


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
