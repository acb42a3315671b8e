"""Describes multiple choice, for `load`, `fit` and files of other libraries."""

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.multiple_choice.answer import ANSWER
from keras_transformers.tasks.multiple_choice.head import multiple_choice
from keras_transformers.tasks.multiple_choice.pipeline import MultipleChoice
from keras_transformers.tasks.task import Task


class MultipleChoiceTask(Task[MultipleChoice]):
    """Chooses one of several texts."""

    name = "multiple_choice"
    answer = ANSWER
    pipeline = MultipleChoice
    new_head_on = "embedding"
    pooled = True
    classes = ("ForMultipleChoice",)
    num_outputs = "one"
    biases = ("classifier.bias",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the scorer of choices."""
        return multiple_choice(encoder)


TASK = MultipleChoiceTask()
