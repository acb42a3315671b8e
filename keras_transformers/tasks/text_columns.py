"""What the training of tasks on labelled texts shares: columns, files and splits."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.tables.in_memory import LABEL, TEXT, TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import Examples, load, majority_share, split
from keras_transformers.evaluation.reports.classification import (
    CLASSIFICATION_FIGURES,
    classification_report,
)
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.temperature import softmax
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.token_inputs import TextPipeline
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names

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
    """Returns a column of strings; BadRowsError for any other values."""
    wrong = {row: x for row, x in enumerate(columns[name]) if not isinstance(x, str)}
    reasons = {row: f"{name} is {x!r:.80}, expected a string" for row, x in wrong.items()}
    check_rows(str(source), reasons)
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


def inputs(examples: Examples) -> dict[str, Sequence[str]]:
    """Returns the texts of examples, by the names of a pipeline's inputs."""
    columns = {"text": examples.texts, "text_b": examples.texts_b}
    return {name: column for name, column in columns.items() if column is not None}


def texts_of(examples: Examples) -> list[str]:
    """Returns the texts of examples for a report: pairs as one text each."""
    if examples.texts_b is None:
        return list(examples.texts)
    pairs = zip(examples.texts, examples.texts_b, strict=True)
    return [f"{text} | {text_b}" for text, text_b in pairs]


def logits_of(outputs: Iterable[Any]) -> np.ndarray:
    """Returns a model's only output: float64 (examples, labels)."""
    parts = [np.asarray(logits, np.float64) for (logits,) in map(keras.tree.flatten, outputs)]
    return np.concatenate(parts)


class LabelledTextTrainer(Trainer[TextPipelineT, Examples]):
    """Trains a task whose examples are texts, or pairs of texts, with one label each."""

    labels = LabelColumn()
    takes_weights = True
    report_figures = CLASSIFICATION_FIGURES

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

    def answers(
        self, pipeline: Any, batches: Any, examples: Examples, outputs: Iterable[Any]
    ) -> Answers:
        """Returns the probabilities of the labels, from the only output."""
        return {"probabilities": softmax(logits_of(outputs), pipeline.temperature)}

    def logits(
        self, pipeline: Any, batches: Any, examples: Examples, outputs: Iterable[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the only output, and the indices of the labels."""
        return logits_of(outputs), np.array(self._ids(pipeline, examples))

    def inputs(self, examples: Examples) -> Mapping[str, Sequence[Any]]:
        """Returns the texts."""
        return inputs(examples)

    def report(self, pipeline: Any, answers: Answers, examples: Examples) -> Report:
        """Reports on each label."""
        return classification_report(
            answers["probabilities"],
            self._ids(pipeline, examples),
            self.labels.labels(pipeline),
            texts=texts_of(examples),
            temperature=pipeline.temperature,
            abstain_below=pipeline.abstain_below,
            title=pipeline.task,
        )

    def baseline(self, pipeline: TextPipelineT, examples: Examples) -> Mapping[str, float]:
        """Returns the accuracy of always predicting the most frequent label."""
        return {"majority": majority_share(examples)}

    def split(self, examples: Examples, share: float) -> tuple[Examples, Examples]:
        """Divides the examples as recipes do."""
        return split_off(examples, share)

    def _ids(self, pipeline: Any, examples: Examples) -> list[int]:
        names = self.labels.labels(pipeline)
        return [names.index(label) for label in examples.labels or ()]
