"""Measures a pipeline on labelled data in one call."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.options import named
from keras_transformers.ranges import PositiveInt, check_ranges
from keras_transformers.tasks.labels import LabelsAre
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import trainer_of
from keras_transformers.tasks.training import Trainer

__all__ = ["evaluate"]


_ADVICE = {
    "pass data=, such as data=(texts, labels)": ("x", "y", "dataset", "eval_dataset", "test_data"),
    "use columns=, from the task's column to the data's": ("column_mapping", "text_column"),
    "leave it out: the task decides which metrics there are": ("metrics", "metric", "verbose"),
}


@named(_ADVICE)
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
    trainer = trainer_of(pipeline)
    chosen: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    check_ranges(evaluate, chosen)
    (examples,) = trainer.read(pipeline, {"data": data}, columns or {}, labels_are)
    options = trainer.options(**chosen)
    batches = trainer.batches(
        trainer.encoded(pipeline, examples), pipeline, **{**options.batching(), "shuffle": False}
    )
    figures: dict[str, float] = {}
    if trainer.metrics(pipeline) is not None:
        figures |= _measured(trainer, pipeline, examples, options, batches)
    figures |= trainer.scores(pipeline, batches, examples) or {}
    return {**figures, **trainer.baseline(pipeline, examples)}


def _measured(
    trainer: Trainer[Any, Any], pipeline: Any, examples: Any, options: Any, batches: Any
) -> dict[str, float]:
    """Returns Keras' metrics; the model's own compile settings stay as they are."""
    model = keras.Model(pipeline.model.input, pipeline.model.output)
    losses = trainer.losses(pipeline, examples, options)
    model.compile(weighted_metrics=trainer.metrics(pipeline), **losses)
    metrics = model.evaluate(batches.dataset(), return_dict=True, verbose=0)
    return {name: float(value) for name, value in metrics.items()}
