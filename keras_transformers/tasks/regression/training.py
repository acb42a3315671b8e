"""Trains regressors: texts, or pairs of texts, with one score each."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.splits import at_random
from keras_transformers.data.text import Examples, ScoredTextBatches
from keras_transformers.evaluation import glue_scores
from keras_transformers.runs import outputs_of
from keras_transformers.tasks import text_columns as texts
from keras_transformers.tasks.labels import check_one_per_row
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Given, Job

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
    return Examples(examples.texts, examples.texts_b, list(map(str, numbers)), examples.source)


def _examples(pipeline: Any, found: Columns, source: Source) -> Examples:
    scores = numbers(found["score"], source)
    return _scaled(pipeline, texts.examples(found, source, scores), source)


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> Examples:
    names = {{"score": "label"}.get(name, name): column for name, column in columns.items()}
    return _scaled(pipeline, texts.from_file(pipeline, path, names), Source(str(path)))


def numbers(values: Sequence[Any], source: Source) -> list[str]:
    """Returns finite numbers as text; ValueError for any other value."""
    check_one_per_row("score", values, source)
    found = []
    for row, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{source.row(row)}: score is {value!r:.60}, expected a number")
        found.append(str(number))
    return found


def _losses(given: Given) -> dict[str, Any]:
    if given.pipeline.activation == "sigmoid":  # a cross-encoder's score is a logit
        return {"loss": {"score": keras.losses.BinaryCrossentropy(from_logits=True)}}
    return {"loss": {"score": keras.losses.MeanSquaredError()}}


def _scores(pipeline: Any, batches: ScoredTextBatches, examples: Any) -> dict[str, float]:
    ((_, references),) = batches.targets(examples).items()
    references = np.asarray(references)
    found = np.concatenate([output["score"] for output in outputs_of(pipeline.model, batches)])
    errors = (found - references) * pipeline.scale
    if pipeline.activation == "sigmoid":
        errors = (1 / (1 + np.exp(-found)) - references) * pipeline.scale
    return {
        "mean_squared_error": float(np.mean(errors**2)),
        **glue_scores(("pearson", "spearman"), found, references),
    }


def _baseline(pipeline: Any, examples: Examples) -> dict[str, float]:
    """Returns the error of always predicting the mean."""
    numbers = np.array([float(label) for label in examples.labels or ()]) * pipeline.scale
    return {"mean_squared_error_of_mean": float(np.var(numbers))}


def _split(found: Examples, share: float) -> tuple[Examples, Examples]:
    train, held_out = at_random(len(found), share, f"{found.source}: examples")
    return found.select(train), found.select(held_out)


JOB = Job(
    task="regression",
    columns=lambda pipeline: texts.columns(pipeline, label="score", usual=_SCORE),
    from_columns=_examples,
    from_file=_from_file,
    batches=ScoredTextBatches,
    losses=_losses,
    monitor=lambda examples: "val_pearson",
    scores=_scores,
    baseline=_baseline,
    split=_split,
)
