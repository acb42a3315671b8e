"""Describes regression, for `load`, `fit` and files of other libraries."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.regression.answer import ANSWER
from keras_transformers.tasks.regression.cross_encoder import activation_fields, read_activation
from keras_transformers.tasks.regression.head import regressor, scaled
from keras_transformers.tasks.regression.pipeline import TextRegressor
from keras_transformers.tasks.task import Task


class RegressionTask(Task[TextRegressor]):
    """Scores texts."""

    name = "regression"
    answer = ANSWER
    pipeline = TextRegressor
    new_head_on = "embedding"
    pooled = True
    classes = ("ForSequenceClassification",)
    second_in = ("ForSequenceClassification",)
    problem_type = "regression"
    num_outputs = "one"
    biases = (
        "classifier.bias",
        "classifier.out_proj.bias",
        "classification_head.out_proj.bias",
    )

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the regressor."""
        return regressor(encoder)

    def read_options(self, folder: Folder) -> dict[str, Any]:
        """Returns the activation, and whether texts are pairs."""
        return read_activation(folder)

    def config_fields(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields that make CrossEncoder read a scorer of pairs."""
        return activation_fields(options.get("activation", "linear")) if options["pair"] else {}

    def prepare(self, pipeline: TextRegressor) -> TextRegressor:
        """Merges scale and offset, for which transformers has no fields, into the last layer."""
        if pipeline.activation != "linear":
            if (pipeline.scale, pipeline.offset) == (1.0, 0.0):
                return pipeline
            raise ValueError(
                f"scale={pipeline.scale} and offset={pipeline.offset} after the activation "
                f"{pipeline.activation!r} cannot be computed by transformers' class: save it in "
                "the format 'keras_transformers'"
            )
        model = scaled(pipeline.model, scale=pipeline.scale, offset=pipeline.offset)
        return pipeline.with_options(model=model, scale=1.0, offset=0.0)


TASK = RegressionTask()
