"""The columns that predictions of labels add to a table."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from keras_transformers.data.tables.kinds import Kind

__all__: list[str] = []

_OTHERS = ("probabilities", "label_index")


def label_kinds(
    kinds: Mapping[str, Kind], labels: Sequence[str], *, probabilities: bool
) -> dict[str, Kind]:
    """Returns the columns for outputs of `labelled`, and for further ones of the pipeline.

    Args:
        kinds: the outputs: name -> kind.
        labels: the pipeline's labels.
        probabilities: whether to add a column per label.
    """
    others = {name: kind for name, kind in kinds.items() if name not in ("label", *_OTHERS)}
    columns = {"label": str, "probability": float, **others}
    return columns | (dict.fromkeys(map(_column, labels), float) if probabilities else {})


def with_probability(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows of outputs with the probability of the label or choice; 0 without choices."""
    return [{**row, "probability": max(row["probabilities"], default=0.0)} for row in rows]


def with_probabilities(
    rows: Iterable[Mapping[str, Any]], labels: Collection[str]
) -> list[dict[str, Any]]:
    """Returns rows of outputs with the probability of each label."""
    names = [_column(label) for label in labels]
    return [{**row, **dict(zip(names, row["probabilities"], strict=True))} for row in rows]


def _column(label: str) -> str:
    return f"probability_{label}"
