"""Reads labels given as names or as indices into the pipeline's labels."""

from collections.abc import Sequence
from typing import Any

__all__: list[str] = []


def as_names(values: Sequence[Any], labels: Sequence[str], source: str) -> list[str]:
    """Returns the names of labels.

    Args:
        values: names in `labels`, or indices from 0. A number that is itself a name is that label.
        labels: the pipeline's labels.
        source: how the error message names the data.

    Raises:
        ValueError: a label is unknown; the message names the row.

    Example:
        >>> as_names([1, "bad"], ["bad", "good"], "data")
        ['good', 'bad']
    """
    return [as_name(value, labels, f"{source}, row {row}") for row, value in enumerate(values)]


def as_name(value: Any, labels: Sequence[str], place: str) -> str:
    """Returns the name of one label; see `as_names`."""
    if isinstance(value, float) and value.is_integer():  # a pandas column with a missing value
        value = int(value)
    name = str(value).strip()
    if name in labels:
        return name
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(labels):
        return labels[value]
    shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
    raise ValueError(
        f"{place}: unknown label {value!r:.60}: the pipeline's labels are {shown}, or their "
        f"indices 0 to {len(labels) - 1}; load it with labels=[...] for others"
    )
