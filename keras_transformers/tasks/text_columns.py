"""What the training of tasks on labelled texts shares: columns, files and splits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from keras_transformers.data.tables.in_memory import LABEL, TEXT, TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import Examples, load, majority_share, split
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.token_inputs import TextPipeline
from keras_transformers.tasks.training import Columns, Trainer, check_column_names

__all__: list[str] = []

TextPipelineT = TypeVar("TextPipelineT", bound=TextPipeline)

_NAMES = ("text", "text_b", "label", "weight")


def columns(
    pipeline: TextPipeline, *, label: str = "label", usual: Sequence[str] = LABEL
) -> list[Wanted]:
    """Returns the columns text, label and, for pipelines of pairs, text_b."""
    return [*text_columns(pipeline), Wanted(label, tuple(usual))]


def text_columns(pipeline: TextPipeline) -> list[Wanted]:
    """Returns the column text and, for pipelines of pairs, text_b."""
    if pipeline.pair:
        return [Wanted("text", TEXT_A), Wanted("text_b", TEXT_B)]
    return [Wanted("text", TEXT)]


def examples(columns: Columns, source: Source, labels: Sequence[str] | None = None) -> Examples:
    """Returns examples made from columns, with the column of labels unless others are passed."""
    texts = [checked(columns, name, source) for name in ("text", "text_b") if name in columns]
    labels = columns["label"] if labels is None else labels
    return Examples(texts[0], texts[1] if len(texts) > 1 else None, labels, str(source))


def checked(columns: Columns, name: str, source: Source) -> list[str]:
    """Returns a column of strings; ValueError for any other value."""
    for row, value in enumerate(columns[name]):
        if not isinstance(value, str):
            raise ValueError(f"{source.row(row)}: {name} is {value!r:.80}, expected a string")
    return columns[name]


def from_file(
    pipeline: TextPipeline,
    path: Path,
    names: Mapping[str, str],
    *,
    labels: Sequence[str] | None = None,
) -> Examples:
    """Reads a file as recipes do; by default, pairs are in the first two columns."""
    check_column_names(names, path, _NAMES)
    return load(
        path,
        text_column=names.get("text", 0),
        text_b_column=names.get("text_b", 1) if pipeline.pair else None,
        label_column=names.get("label", 2 if pipeline.pair else 1),
        weight_column=names.get("weight"),
        labels=labels,
    )


def split_off(examples: Examples, share: float) -> tuple[Examples, Examples]:
    """Divides examples as recipes do."""
    train, dev = split(examples, {"train": 1 - share, "dev": share}, seed=0).values()
    return train, dev


class LabelledTextTrainer(Trainer[TextPipelineT, Examples]):
    """Trains a task whose examples are texts, or pairs of texts, with one label each."""

    labels = LabelColumn()
    takes_weights = True

    def columns(self, pipeline: TextPipelineT) -> Sequence[Wanted]:
        """Returns text, label and, for pipelines of pairs, text_b."""
        return columns(pipeline)

    def from_columns(self, pipeline: TextPipelineT, columns: Columns, source: Source) -> Examples:
        """Makes examples from those columns."""
        return examples(columns, source)

    def from_file(
        self, pipeline: TextPipelineT, path: Path, columns: Mapping[str, str]
    ) -> Examples:
        """Reads a table as recipes do."""
        return from_file(pipeline, path, columns, labels=self.labels.labels(pipeline))

    def baseline(self, pipeline: TextPipelineT, examples: Examples) -> Mapping[str, float]:
        """Returns the accuracy of always predicting the most frequent label."""
        return {"majority": majority_share(examples)}

    def split(self, examples: Examples, share: float) -> tuple[Examples, Examples]:
        """Divides the examples as recipes do."""
        return split_off(examples, share)
