"""Describes tagging, for `load`, `fit` and files of other libraries."""

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.tagging.answer import ANSWER
from keras_transformers.tasks.tagging.head import tagger
from keras_transformers.tasks.tagging.pipeline import Tagger
from keras_transformers.tasks.task import Task


class TaggingTask(Task[Tagger]):
    """Labels the words of texts."""

    name = "tagging"
    answer = ANSWER
    pipeline = Tagger
    new_head_on = "embedding"
    needs = ("labels",)
    classes = ("ForTokenClassification",)
    num_outputs = "several"
    biases = ("classifier.bias",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the tagger."""
        return tagger(encoder, num_labels)


TASK = TaggingTask()
