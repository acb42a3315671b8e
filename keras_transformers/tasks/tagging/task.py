"""Describes tagging, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.in_memory import TEXT, Wanted
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.files.errors import short_repr
from keras_transformers.tasks.tagging.answer import ANSWER, TaggedEntity, Tags
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

    def table_inputs(self, pipeline: Tagger) -> Sequence[Sequence[Wanted]]:
        """Returns words, lists as in training; or text."""
        return [[Wanted("words", ("tokens",))], [Wanted("text", TEXT)]]

    def table_outputs(
        self, pipeline: Tagger, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns the entities of texts, or the labels of words."""
        if "words" in inputs:
            kinds: dict[str, Kind] = {"labels": list[str], "scores": list[float]}
            return kinds if pipeline.abstain_below is None else {**kinds, "abstained": list[bool]}
        return {"entities": list[TaggedEntity]}

    def table_rows(
        self, pipeline: Tagger, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers texts with their entities, and words with their labels."""
        rows = super().table_rows(pipeline, columns, batch_size=batch_size)
        if "words" not in columns:
            tags: list[Any] = [self.answer.typed(row) for row in rows]
            return [{"entities": row.entities} for row in tags if isinstance(row, Tags)]
        return [  # those of an export are as long as the longest of their batch
            {name: cells[: len(words)] for name, cells in row.items()}
            for row, words in zip(rows, columns["words"], strict=True)
        ]

    def cell_fault(self, name: str, value: Any) -> str:
        """Returns why a cell is neither a text nor a list of words, or ""."""
        if name != "words":
            return super().cell_fault(name, value)
        are_words = isinstance(value, list) and all(isinstance(x, str) and x for x in value)
        return "" if are_words else f"{short_repr(value)}, expected a list of words"


TASK = TaggingTask()
