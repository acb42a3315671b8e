"""Describes question answering, for `load`, `fit` and files of other libraries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.files import compression
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

    def file_rows(self, path: Path) -> Iterator[dict[str, Any]] | None:
        """Returns the questions of SQuAD's JSON, with their ids and contexts."""
        if Path(compression.inner_name(path)).suffix.lower() != ".json":
            return None
        from keras_transformers.data.text import load_squad  # a served pipeline reads no files

        data = load_squad(path, answered=False)
        rows = zip(data.ids, data.questions, data.context_of, strict=True)
        return (
            {"id": id_, "question": question, "context": data.contexts[context]}
            for id_, question, context in rows
        )


TASK = QuestionAnsweringTask()
