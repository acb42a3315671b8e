"""Describes multiple choice, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.classification.table import with_probability
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

    def table_outputs(
        self, pipeline: MultipleChoice, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns choice, choice_index, probability and, on request, those of all choices."""
        kinds = dict(super().table_outputs(pipeline, inputs, probabilities=probabilities))
        of_all = kinds.pop("probabilities")
        columns = {"choice": str, "choice_index": int, "probability": float} | kinds
        return columns | ({"probabilities": of_all} if probabilities else {})

    def table_rows(
        self, pipeline: MultipleChoice, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows with the choice and its probability."""
        return with_probability(super().table_rows(pipeline, columns, batch_size=batch_size))


TASK = MultipleChoiceTask()
