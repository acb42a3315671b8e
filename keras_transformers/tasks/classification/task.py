"""Describes classification, for `load`, `fit` and files of other libraries."""

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.classification.answer import ANSWER
from keras_transformers.tasks.classification.head import classifier
from keras_transformers.tasks.classification.pipeline import TextClassifier
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
    biases = ("classifier.bias", "classifier.out_proj.bias")

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the classifier."""
        return classifier(encoder, num_labels)


TASK = ClassificationTask()
