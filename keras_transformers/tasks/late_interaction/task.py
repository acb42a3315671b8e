"""Describes late interaction, for `load`, `fit` and files of other libraries."""

from pathlib import Path

import keras

from keras_transformers.convert.families import without_pooler
from keras_transformers.convert.formats.weights import FoundWeights, TrainedModel
from keras_transformers.tasks.late_interaction.answer import ANSWER
from keras_transformers.tasks.late_interaction.files import save_multi_vector_encoder
from keras_transformers.tasks.late_interaction.pipeline import LateInteraction
from keras_transformers.tasks.task import Task


class LateInteractionTask(Task[LateInteraction]):
    """Sorts documents by how well the vectors of their tokens match a query's."""

    name = "late_interaction"
    answer = ANSWER
    pipeline = LateInteraction
    new_head_on = "embedding"

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Leaves out the pooler; the pipeline adds the projection."""
        return without_pooler(encoder)

    def write(self, trained: TrainedModel, folder: Path) -> None:
        """Saves a folder for MultiVectorEncoder."""
        save_multi_vector_encoder(trained, folder)


TASK = LateInteractionTask()
