"""Describes multi label classification, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.classification.head import classifier
from keras_transformers.tasks.classification.table import label_kinds, with_probabilities
from keras_transformers.tasks.multi_label_classification.answer import ANSWER
from keras_transformers.tasks.multi_label_classification.pipeline import MultiLabelClassifier
from keras_transformers.tasks.task import Task


class MultiLabelClassificationTask(Task[MultiLabelClassifier]):
    """Gives texts any number of labels."""

    name = "multi_label_classification"
    answer = ANSWER
    pipeline = MultiLabelClassifier
    new_head_on = "embedding"
    needs = ("labels",)
    pooled = True
    classes = ("ForSequenceClassification",)
    problem_type = "multi_label_classification"
    by_default = False
    num_outputs = "several"

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the classifier."""
        return classifier(encoder, num_labels)

    def config_fields(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the field that names the task."""
        return {"problem_type": self.problem_type}

    def table_outputs(
        self, pipeline: MultiLabelClassifier, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns labels and, on request, one column per label."""
        kinds = super().table_outputs(pipeline, inputs, probabilities=probabilities)
        columns = label_kinds(kinds, pipeline.labels, probabilities=probabilities)
        return {name: columns[name] for name in columns if name not in ("label", "probability")}

    def table_rows(
        self,
        pipeline: MultiLabelClassifier,
        columns: Mapping[str, Sequence[Any]],
        *,
        batch_size: int,
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows with their labels and probabilities."""
        rows = super().table_rows(pipeline, columns, batch_size=batch_size)
        return with_probabilities(rows, pipeline.labels)


TASK = MultiLabelClassificationTask()
