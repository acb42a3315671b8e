"""Describes reranking, for `load`, `fit` and files of other libraries."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import FoundWeights
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
        """Adds the regressor."""
        return regressor(encoder)

    def read_options(self, folder: Folder) -> dict[str, Any]:
        """Returns the activation."""
        options = read_activation(folder)
        return {name: options[name] for name in ("activation",) if name in options}

    def config_fields(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields that make CrossEncoder read it."""
        return activation_fields(options["activation"])


TASK = RerankingTask()
