"""Trains regressors: texts, or pairs of texts, with one score each."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import Examples, ScoredTextBatches
from keras_transformers.evaluation import glue_scores
from keras_transformers.runs import Training, outputs_of
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.labels import check_one_per_row
from keras_transformers.tasks.regression.pipeline import TextRegressor
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Trainer
from keras_transformers.training.losses import ElementwiseLoss

__all__: list[str] = []

_SCORE = ("label", "labels", "similarity", "relatedness_score", "rating", "target")


def _scaled(pipeline: Any, examples: Examples, source: Source) -> Examples:
    """Returns the scores as the model computes them, before the pipeline's scale and activation."""
    numbers = [(float(label) - pipeline.offset) / pipeline.scale for label in examples.labels or ()]
    if pipeline.activation == "sigmoid":
        for row, (number, label) in enumerate(zip(numbers, examples.labels or (), strict=True)):
            if not 0 <= number <= 1:
                raise ValueError(
                    f"{source.row(row)}: the score {label} is not from "
                    f"{pipeline.offset:g} to {pipeline.offset + pipeline.scale:g}, the range of "
                    "this pipeline's answers"
                )
    return dataclasses.replace(examples, labels=list(map(str, numbers)))


def numbers(values: Sequence[Any], source: Source) -> list[str]:
    """Returns finite numbers as text; ValueError for any other value."""
    check_one_per_row("score", values, source)
    texts = []
    for row, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{source.row(row)}: score is {value!r:.60}, expected a number")
        texts.append(str(number))
    return texts


def score_loss(loss: keras.losses.Loss, examples: Examples) -> Mapping[str, Any]:
    """Returns `loss` for `model.compile`: of each score, if the examples have weights."""
    return {"loss": {"score": loss if examples.weights is None else ElementwiseLoss(loss)}}


class RegressionTrainer(Trainer[TextRegressor, Examples]):
    """Trains regressors of texts."""

    batches = ScoredTextBatches
    monitored = "val_pearson"
    takes_weights = True

    def columns(self, pipeline: TextRegressor) -> Sequence[Wanted]:
        return text_columns.columns(pipeline, label="score", usual=_SCORE)

    def from_columns(self, pipeline: TextRegressor, columns: Columns, source: Source) -> Examples:
        scores = numbers(columns["score"], source)
        return _scaled(pipeline, text_columns.examples(columns, source, scores), source)

    def from_file(
        self, pipeline: TextRegressor, path: Path, columns: Mapping[str, str]
    ) -> Examples:
        names = {{"score": "label"}.get(name, name): column for name, column in columns.items()}
        examples = text_columns.from_file(pipeline, path, names)
        return _scaled(pipeline, examples, Source(str(path)))

    def losses(
        self, pipeline: TextRegressor, examples: Examples, options: Training
    ) -> Mapping[str, Any]:
        if pipeline.activation == "sigmoid":  # a cross-encoder's score is a logit
            return score_loss(keras.losses.BinaryCrossentropy(from_logits=True), examples)
        return score_loss(keras.losses.MeanSquaredError(), examples)

    def scores(
        self, pipeline: TextRegressor, batches: ScoredTextBatches, examples: Examples
    ) -> Mapping[str, float]:
        ((_, targets),) = batches.targets(examples).items()
        references = np.asarray(targets)
        outputs = outputs_of(pipeline.model, batches)
        scores = np.concatenate([output["score"] for output in outputs])
        errors = (scores - references) * pipeline.scale
        if pipeline.activation == "sigmoid":
            errors = (1 / (1 + np.exp(-scores)) - references) * pipeline.scale
        return {
            "mean_squared_error": float(np.mean(errors**2)),
            **glue_scores(("pearson", "spearman"), scores, references),
        }

    def baseline(self, pipeline: TextRegressor, examples: Examples) -> Mapping[str, float]:
        """Returns the error of always predicting the mean."""
        scores = np.array([float(label) for label in examples.labels or ()]) * pipeline.scale
        return {"mean_squared_error_of_mean": float(np.var(scores))}


TRAINER = RegressionTrainer()
