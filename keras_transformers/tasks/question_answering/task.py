"""Describes question answering, for `load`, `fit` and files of other libraries."""

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.question_answering.answer import ANSWER
from keras_transformers.tasks.question_answering.head import span_extractor
from keras_transformers.tasks.question_answering.pipeline import QuestionAnswerer
from keras_transformers.tasks.task import Task


class QuestionAnsweringTask(Task[QuestionAnswerer]):
    """Finds answers to questions in texts."""

    name = "question_answering"
    answer = ANSWER
    pipeline = QuestionAnswerer
    new_head_on = "embedding"
    classes = ("ForQuestionAnswering",)
    biases = ("qa_outputs.bias",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the span extractor."""
        return span_extractor(encoder)


TASK = QuestionAnsweringTask()
