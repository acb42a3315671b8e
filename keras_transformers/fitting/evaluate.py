"""Measures a pipeline on labelled data in one call."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.ranges import PositiveInt, check_ranges
from keras_transformers.tasks.labels import LabelsAre
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.training import Given, Job, job_of

__all__ = ["evaluate"]


def evaluate(
    pipeline: Pipeline,
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    labels_are: LabelsAre | None = None,
    batch_size: PositiveInt | None = None,
) -> dict[str, float]:
    """Returns the metrics that the task's recipe reports, and a baseline to compare with.

    The baseline needs no model: for example `majority`, the accuracy of always predicting the
    most frequent label, or `chance`.

    Args:
        pipeline: a pipeline from `load`.
        data: labelled data; `fit` lists each task's columns.
        columns: the task's column name -> the data's, where they differ.
        labels_are: how to read numbers that can be names or indices; see `fit`.
        batch_size: examples per batch, 16 or 32 by default; it does not change the metrics.

    Returns:
        Name -> value, such as {"accuracy": 0.91, "loss": 0.24, "majority": 0.51}.

    Raises:
        TypeError, ValueError: see `fit`.

    Example:
        kt.evaluate(classify, (texts, labels))
    """
    job = job_of(pipeline)
    given: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    check_ranges(evaluate, given)
    (examples,) = job.read(pipeline, {"data": data}, columns or {}, labels_are)
    batching = job.options(**given).batching() | {"shuffle": False}
    batches = job.batches(job.encoded(pipeline, examples), pipeline, **batching)
    figures: dict[str, float] = {}
    metrics = job.metrics(pipeline)
    if metrics is not None:
        figures |= _measured(job, Given(pipeline, job.options(), examples), batches)
    if job.scores is not None:
        figures |= job.scores(pipeline, batches, examples)
    return {**figures, **job.baseline(pipeline, examples)}


def _measured(job: Job, given: Given, batches: Any) -> dict[str, float]:
    """Returns Keras' metrics; the model's own compile settings stay as they are."""
    whole = given.pipeline.model
    model = keras.Model(whole.input, whole.output)
    model.compile(weighted_metrics=job.metrics(given.pipeline), **job.losses(given))
    found = model.evaluate(batches.dataset(), return_dict=True, verbose=0)
    return {name: float(value) for name, value in found.items()}
