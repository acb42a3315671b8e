"""Trains regressors: texts, or pairs of texts, with one score each."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import Examples, ScoredTextBatches
from keras_transformers.evaluation import glue_scores
from keras_transformers.evaluation.reports.regression import (
    REGRESSION_FIGURES,
    regression_report,
)
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.labels import check_one_per_row
from keras_transformers.tasks.regression.pipeline import TextRegressor
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer
from keras_transformers.training.losses import ElementwiseLoss

__all__: list[str] = []

_SCORE = ("label", "labels", "similarity", "relatedness_score", "rating", "target")


def _scaled(pipeline: Any, examples: Examples, source: Source) -> Examples:
    """Returns the scores as the model computes them, before the pipeline's scale and activation."""
    numbers = [(float(label) - pipeline.offset) / pipeline.scale for label in examples.labels or ()]
    if pipeline.activation == "sigmoid":
        lowest, highest = pipeline.offset, pipeline.offset + pipeline.scale
        reasons = {
            row: f"the score {label} is not from {lowest:g} to {highest:g}, the range of this "
            "pipeline's answers"
            for row, (number, label) in enumerate(zip(numbers, examples.labels or (), strict=True))
            if not 0 <= number <= 1
        }
        check_rows(str(source), reasons)
    return dataclasses.replace(examples, labels=list(map(str, numbers)))


def _references(pipeline: Any, examples: Examples) -> np.ndarray:
    """Returns the scores in the units of the pipeline's answers: float64 (examples,)."""
    scores = np.array([float(label) for label in examples.labels or ()])
    return pipeline.scale * scores + pipeline.offset


def numbers(values: Sequence[Any], source: Source) -> list[str]:
    """Returns finite numbers as text; BadRowsError for any other values."""
    check_one_per_row("score", values, source)
    texts = []
    reasons = {}
    for row, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            reasons[row] = f"score is {value!r:.60}, expected a number"
        texts.append(str(number))
    check_rows(str(source), reasons)
    return texts


def score_loss(loss: keras.losses.Loss, examples: Examples) -> Mapping[str, Any]:
    """Returns `loss` for `model.compile`: of each score, if the examples have weights."""
    return {"loss": {"score": loss if examples.weights is None else ElementwiseLoss(loss)}}


class RegressionTrainer(Trainer[TextRegressor, Examples]):
    """Trains regressors of texts."""

    batches = ScoredTextBatches
    monitored = "val_pearson"
    takes_weights = True
    report_figures = REGRESSION_FIGURES

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

    def answers(
        self,
        pipeline: TextRegressor,
        batches: ScoredTextBatches,
        examples: Examples,
        outputs: Iterable[Any],
    ) -> Answers:
        scores = np.concatenate([output["score"] for output in outputs]).astype(np.float64)
        if pipeline.activation == "sigmoid":
            scores = 1 / (1 + np.exp(-scores))
        return {"score": pipeline.scale * scores + pipeline.offset}

    def answer_scores(
        self, pipeline: TextRegressor, answers: Answers, examples: Examples
    ) -> Mapping[str, float]:
        scores, references = np.asarray(answers["score"]), _references(pipeline, examples)
        return {
            "mean_squared_error": float(np.mean((scores - references) ** 2)),
            **glue_scores(("pearson", "spearman"), scores, references),
        }

    def inputs(self, examples: Examples) -> Mapping[str, Sequence[Any]]:
        return text_columns.inputs(examples)

    def report(self, pipeline: Any, answers: Answers, examples: Examples) -> Report:
        return regression_report(
            answers["score"],
            _references(pipeline, examples),
            texts=text_columns.texts_of(examples),
            title=pipeline.task,
        )

    def baseline(self, pipeline: TextRegressor, examples: Examples) -> Mapping[str, float]:
        """Returns the error of always predicting the mean."""
        scores = np.array([float(label) for label in examples.labels or ()]) * pipeline.scale
        return {"mean_squared_error_of_mean": float(np.var(scores))}


TRAINER = RegressionTrainer()
