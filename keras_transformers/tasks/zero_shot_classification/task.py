"""Describes zero-shot classification, for `load`, `predict` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.classification.head import classifier
from keras_transformers.tasks.classification.table import with_probability
from keras_transformers.tasks.task import Task
from keras_transformers.tasks.zero_shot_classification.answer import ANSWER
from keras_transformers.tasks.zero_shot_classification.pipeline import ZeroShotClassifier


class ZeroShotClassificationTask(Task[ZeroShotClassifier]):
    """Chooses among labels that each request brings."""

    name = "zero_shot_classification"
    answer = ANSWER
    pipeline = ZeroShotClassifier
    needs = ("labels",)
    classes = ("ForSequenceClassification",)
    second_in = ("ForSequenceClassification",)
    by_default = False
    num_outputs = "several"

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the classifier."""
        return classifier(encoder, num_labels)

    def table_outputs(
        self, pipeline: ZeroShotClassifier, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns label, label_index, probability and, on request, those of all labels."""
        kinds = dict(super().table_outputs(pipeline, inputs, probabilities=probabilities))
        of_all = kinds.pop("probabilities")
        columns = {"label": str, "label_index": int, "probability": float} | kinds
        return columns | ({"probabilities": of_all} if probabilities else {})

    def table_rows(
        self, pipeline: ZeroShotClassifier, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows with the label and its probability."""
        return with_probability(super().table_rows(pipeline, columns, batch_size=batch_size))


TASK = ZeroShotClassificationTask()
