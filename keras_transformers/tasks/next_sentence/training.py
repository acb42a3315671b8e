"""Trains next-sentence predictors: pairs of texts, labelled whether the second follows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import Examples, NextSentenceBatches, majority_share
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.next_sentence.pipeline import NextSentenceClassifier
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Trainer
from keras_transformers.training import TokenCrossentropy

__all__: list[str] = []

_LABELS = ("0", "1")  # 0: the second text follows, as in Google's BERT


class NextSentenceTrainer(Trainer[NextSentenceClassifier, Examples]):
    """Trains next-sentence predictors."""

    batches = NextSentenceBatches
    labels = LabelColumn(labels=lambda pipeline: _LABELS)

    def columns(self, pipeline: NextSentenceClassifier) -> Sequence[Wanted]:
        return text_columns.columns(pipeline)

    def from_columns(
        self, pipeline: NextSentenceClassifier, columns: Columns, source: Source
    ) -> Examples:
        return text_columns.examples(columns, source)

    def from_file(
        self, pipeline: NextSentenceClassifier, path: Path, columns: Mapping[str, str]
    ) -> Examples:
        return text_columns.from_file(pipeline, path, columns, labels=_LABELS)

    def losses(
        self, pipeline: NextSentenceClassifier, examples: Examples, options: Training
    ) -> Mapping[str, Any]:
        return {"loss": {"next_sentence_logits": TokenCrossentropy()}}

    def metrics(self, pipeline: NextSentenceClassifier) -> Mapping[str, Any]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"next_sentence_logits": [accuracy]}

    def baseline(self, pipeline: NextSentenceClassifier, examples: Examples) -> Mapping[str, float]:
        return {"majority": majority_share(examples)}

    def split(self, examples: Examples, share: float) -> tuple[Examples, Examples]:
        return text_columns.split_off(examples, share)


TRAINER = NextSentenceTrainer()
