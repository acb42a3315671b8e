"""Describes classification, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.classification.answer import ANSWER
from keras_transformers.tasks.classification.head import classifier
from keras_transformers.tasks.classification.pipeline import TextClassifier
from keras_transformers.tasks.classification.table import (
    label_kinds,
    with_probabilities,
    with_probability,
)
from keras_transformers.tasks.task import Task


class ClassificationTask(Task[TextClassifier]):
    """Labels texts."""

    name = "classification"
    answer = ANSWER
    pipeline = TextClassifier
    new_head_on = "embedding"
    needs = ("labels",)
    pooled = True
    classes = ("ForSequenceClassification",)
    problem_type = "single_label_classification"
    num_outputs = "several"
    biases = (
        "classifier.bias",
        "classifier.out_proj.bias",
        "classification_head.out_proj.bias",
    )

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the classifier."""
        return classifier(encoder, num_labels)

    def table_outputs(
        self, pipeline: TextClassifier, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns label, probability and, on request, one column per label."""
        kinds = super().table_outputs(pipeline, inputs, probabilities=probabilities)
        return label_kinds(kinds, pipeline.labels, probabilities=probabilities)

    def table_rows(
        self, pipeline: TextClassifier, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows with their labels and probabilities."""
        rows = super().table_rows(pipeline, columns, batch_size=batch_size)
        return with_probabilities(with_probability(rows), pipeline.labels)


TASK = ClassificationTask()
