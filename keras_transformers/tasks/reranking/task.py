"""Describes reranking, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.regression.cross_encoder import activation_fields, read_activation
from keras_transformers.tasks.regression.head import regressor
from keras_transformers.tasks.reranking.answer import ANSWER
from keras_transformers.tasks.reranking.pipeline import Reranker
from keras_transformers.tasks.task import Task


class RerankingTask(Task[Reranker]):
    """Sorts documents by how well they answer a query."""

    name = "reranking"
    answer = ANSWER
    pipeline = Reranker
    new_head_on = "embedding"
    pooled = True
    classes = ("ForSequenceClassification",)
    second_in = ("ForSequenceClassification",)
    by_default = False
    num_outputs = "one"

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the regressor; the pipeline turns a language model's answers into scores."""
        return encoder if "logits" in encoder.output else regressor(encoder)

    def read_options(self, folder: Folder) -> dict[str, Any]:
        """Returns the activation."""
        options = read_activation(folder)
        return {name: options[name] for name in ("activation",) if name in options}

    def config_fields(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields that make CrossEncoder read it."""
        return activation_fields(options["activation"])

    def table_inputs(self, pipeline: Reranker) -> Sequence[Sequence[Wanted]]:
        """Returns text with documents, a list; or with text_b, a document, as in training."""
        text, *others = self._training_columns(pipeline)
        return [[text, Wanted("documents")], [text, *others]]

    def table_outputs(
        self, pipeline: Reranker, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns scores and order of documents, or the score of one."""
        if "documents" not in inputs:
            return {"score": float}
        return super().table_outputs(pipeline, inputs, probabilities=probabilities)

    def table_rows(
        self, pipeline: Reranker, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers queries with the scores of their documents."""
        if "documents" in columns:
            return super().table_rows(pipeline, columns, batch_size=batch_size)
        pairs = {"text": columns["text"], "documents": [[text] for text in columns["text_b"]]}
        rows = super().table_rows(pipeline, pairs, batch_size=batch_size)
        return [{"score": row["scores"][0] if row["scores"] else 0.0} for row in rows]

    def _training_columns(self, pipeline: Reranker) -> Sequence[Wanted]:
        trainer = self.trainer()
        assert trainer is not None
        return [column for column in trainer.columns(pipeline) if column.name != "score"]


TASK = RerankingTask()
