"""Describes sparse embedding, for `load`, `fit` and files of other libraries."""

from pathlib import Path

import keras

from keras_transformers.convert.formats.weights import FoundWeights, TrainedModel
from keras_transformers.tasks.fill_mask.task import FillMaskTask
from keras_transformers.tasks.sparse_embedding.answer import ANSWER
from keras_transformers.tasks.sparse_embedding.files import save_sparse_encoder
from keras_transformers.tasks.sparse_embedding.head import sparse_embedder
from keras_transformers.tasks.sparse_embedding.pipeline import SparseEmbedder
from keras_transformers.tasks.task import Task


class SparseEmbeddingTask(Task[SparseEmbedder]):
    """Turns texts into weights of tokens."""

    name = "sparse_embedding"
    answer = ANSWER
    pipeline = SparseEmbedder
    new_head_on = "embedding"
    classes = ("ForMaskedLM",)
    head_of = FillMaskTask.name

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the head that fills masks, pooled over the text."""
        return sparse_embedder(encoder, **weights.masked_lm)

    def write(self, trained: TrainedModel, folder: Path) -> None:
        """Saves a folder for SparseEncoder."""
        save_sparse_encoder(trained, folder)


TASK = SparseEmbeddingTask()
