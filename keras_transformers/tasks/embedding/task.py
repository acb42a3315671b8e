"""Describes embedding, for `load`, `fit` and files of other libraries."""

from pathlib import Path

import keras

from keras_transformers.convert.families import without_pooler
from keras_transformers.convert.formats.weights import FoundWeights, TrainedModel
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


TASK = EmbeddingTask()
