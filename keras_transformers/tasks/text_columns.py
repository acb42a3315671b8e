"""Holds the code that jobs on labelled texts share: columns, files and splits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformers.data.tables.in_memory import LABEL, TEXT, TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import Examples, load, split
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, check_column_names

__all__: list[str] = []

_NAMES = ("text", "text_b", "label")


def columns(pipeline: Any, *, label: str = "label", usual: Sequence[str] = LABEL) -> list[Wanted]:
    """Returns the columns text, label and, for pipelines of pairs, text_b."""
    return [*text_columns(pipeline), Wanted(label, tuple(usual))]


def text_columns(pipeline: Any) -> list[Wanted]:
    """Returns the column text and, for pipelines of pairs, text_b."""
    if pipeline.pair:
        return [Wanted("text", TEXT_A), Wanted("text_b", TEXT_B)]
    return [Wanted("text", TEXT)]


def examples(found: Columns, source: Source, labels: Sequence[str] | None = None) -> Examples:
    """Returns examples made from columns, with the column of labels unless others are passed."""
    texts = [checked(found, name, source) for name in ("text", "text_b") if name in found]
    labels = found["label"] if labels is None else labels
    return Examples(texts[0], texts[1] if len(texts) > 1 else None, labels, str(source))


def checked(found: Columns, name: str, source: Source) -> list[str]:
    """Returns a column of strings; ValueError for any other value."""
    for row, value in enumerate(found[name]):
        if not isinstance(value, str):
            raise ValueError(f"{source.row(row)}: {name} is {value!r:.80}, expected a string")
    return found[name]


def from_file(
    pipeline: Any, path: Path, names: Mapping[str, str], *, labels: Sequence[str] | None = None
) -> Examples:
    """Reads a file as recipes do; by default, pairs are in the first two columns."""
    check_column_names(names, path, _NAMES)
    return load(
        path,
        text_column=names.get("text", 0),
        text_b_column=names.get("text_b", 1) if pipeline.pair else None,
        label_column=names.get("label", 2 if pipeline.pair else 1),
        labels=labels,
    )


def split_off(found: Examples, share: float) -> tuple[Examples, Examples]:
    """Divides examples as recipes do."""
    train, dev = split(found, {"train": 1 - share, "dev": share}, seed=0).values()
    return train, dev
