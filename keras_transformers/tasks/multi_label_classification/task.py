"""Describes multi label classification, for `load`, `fit` and files of other libraries."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.classification.head import classifier
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


TASK = MultiLabelClassificationTask()
