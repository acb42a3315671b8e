"""Trains classifiers: texts, or pairs of texts, with one label each."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import Examples, TextBatches, majority_share
from keras_transformers.ranges import Rate
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.classification.pipeline import TextClassifier
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Trainer
from keras_transformers.training import TokenCrossentropy

__all__ = ["ClassificationOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Training):
    """How classifiers are trained."""

    label_smoothing: Rate = 0.0  # share of the target spread evenly over the labels


class ClassificationTrainer(Trainer[TextClassifier, Examples]):
    """Trains classifiers of texts."""

    options = ClassificationOptions
    batches = TextBatches
    labels = LabelColumn()

    def columns(self, pipeline: TextClassifier) -> Sequence[Wanted]:
        return text_columns.columns(pipeline)

    def from_columns(self, pipeline: TextClassifier, columns: Columns, source: Source) -> Examples:
        return text_columns.examples(columns, source)

    def from_file(
        self, pipeline: TextClassifier, path: Path, columns: Mapping[str, str]
    ) -> Examples:
        return text_columns.from_file(pipeline, path, columns, labels=pipeline.labels)

    def losses(
        self, pipeline: TextClassifier, examples: Examples, options: ClassificationOptions
    ) -> Mapping[str, Any]:
        return {"loss": {"logits": TokenCrossentropy(label_smoothing=options.label_smoothing)}}

    def metrics(self, pipeline: TextClassifier) -> Mapping[str, Any]:
        return {"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]}

    def baseline(self, pipeline: TextClassifier, examples: Examples) -> Mapping[str, float]:
        return {"majority": majority_share(examples)}

    def split(self, examples: Examples, share: float) -> tuple[Examples, Examples]:
        return text_columns.split_off(examples, share)


TRAINER = ClassificationTrainer()
