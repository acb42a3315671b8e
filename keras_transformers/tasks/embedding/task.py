"""Describes embedding, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.families import without_pooler
from keras_transformers.convert.formats.weights import FoundWeights, TrainedModel
from keras_transformers.data.tables.in_memory import TEXT, TEXT_A, Wanted
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.embedding.answer import ANSWER
from keras_transformers.tasks.embedding.files import save_sentence_transformers
from keras_transformers.tasks.embedding.pipeline import Embedder
from keras_transformers.tasks.task import Task


class EmbeddingTask(Task[Embedder]):
    """Turns texts into vectors."""

    name = "embedding"
    answer = ANSWER
    pipeline = Embedder
    headless = True
    classes = ("Model",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Leaves out the pooler, since the pipeline pools."""
        return without_pooler(encoder)

    def write(self, trained: TrainedModel, folder: Path) -> None:
        """Saves a folder for SentenceTransformer."""
        save_sentence_transformers(trained, folder)

    def table_inputs(self, pipeline: Embedder) -> Sequence[Sequence[Wanted]]:
        """Returns text, which may be the first of a pair."""
        return [[Wanted("text", (*TEXT_A, *TEXT))]]

    def table_outputs(
        self, pipeline: Embedder, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns embedding: a float32 array, or a list in other libraries' tables."""
        return {"embedding": list[np.float32]}

    def table_rows(
        self, pipeline: Embedder, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows with their vectors."""
        rows = super().table_rows(pipeline, columns, batch_size=batch_size)
        return [{"embedding": np.array(row["embedding"], np.float32)} for row in rows]


TASK = EmbeddingTask()
