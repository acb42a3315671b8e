"""Measures a pipeline on labelled data in one call."""

import collections
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.data.batching import Batches
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.options import named
from keras_transformers.ranges import PositiveInt, check_ranges
from keras_transformers.runs import outputs_of
from keras_transformers.tasks.labels import LabelsAre
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import trainer_of
from keras_transformers.tasks.training import Answers, Trainer

__all__ = ["Scores", "evaluate", "reports_on"]


_ADVICE = {
    "pass data=, such as data=(texts, labels)": ("x", "y", "dataset", "eval_dataset", "test_data"),
    "use columns=, from the task's column to the data's": ("column_mapping", "text_column"),
    "leave it out: the task decides which metrics there are": ("metrics", "metric", "verbose"),
}


class Scores(dict[str, float]):
    """The metrics of `evaluate`: a dict, with a report.

    Attributes:
        report: what the task's practitioners print; None if the task has no report.
    """

    def __init__(self, figures: Mapping[str, float], report: Report | None) -> None:
        super().__init__(figures)
        self.report = report


@named(_ADVICE)
def evaluate(
    pipeline: Pipeline,
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    labels_are: LabelsAre | None = None,
    batch_size: PositiveInt | None = None,
) -> Scores:
    """Returns the metrics that the task's recipe reports, and a baseline to compare with.

    The baseline needs no model: for example `majority`, the accuracy of always predicting the
    most frequent label, or `chance`.

    Args:
        pipeline: a pipeline from `load`.
        data: labelled data; `fit` lists each task's columns.
        columns: the task's column name -> the data's, where they differ.
        labels_are: how to read numbers that can be names or indices; see `fit`.
        batch_size: examples per batch, 16 or 32 by default. It changes no metric but the loss of
            words and tokens, which is a mean over batches.

    Returns:
        Name -> value, such as {"accuracy": 0.91, "loss": 0.24, "majority": 0.51}. Its `report`
        says more: the scores of each class, what is confused, the most confident mistakes.

    Raises:
        TypeError, ValueError: see `fit`.

    Example:
        scores = kt.evaluate(classify, (texts, labels))
        print(scores["accuracy"], scores.report)
    """
    trainer = trainer_of(pipeline)
    chosen: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    check_ranges(evaluate, chosen)
    (examples,) = trainer.read(pipeline, {"data": data}, columns or {}, labels_are)
    options = trainer.options(**chosen)
    batches = trainer.batches(
        trainer.encoded(pipeline, examples), pipeline, **{**options.batching(), "shuffle": False}
    )
    measured, answers = _measured(trainer, pipeline, examples, options, batches)
    figures = {
        **measured,
        **trainer.answer_scores(pipeline, answers, examples),
        **trainer.baseline(pipeline, examples),
    }
    return Scores(figures, trainer.report(pipeline, answers, examples))


def reports_on(pipeline: Pipeline, batches: Batches, **parts: Any) -> dict[str, Report]:
    """Returns the reports on parts of the data, for `runs.Run.finish`.

    Args:
        pipeline: the pipeline, with the weights to measure.
        batches: batches whose `of` makes those of a part.
        **parts: the examples of each part by name; None for those that there are not.

    Example:
        run.finish(classify, figures, reports=reports_on(classify, batches, dev=dev, test=test))
    """
    trainer = trainer_of(pipeline)
    reports = {
        name: trainer.reported(pipeline, batches.of(examples), examples)
        for name, examples in parts.items()
        if examples is not None
    }
    return {name: report for name, report in reports.items() if report is not None}


def _measured(
    trainer: Trainer[Any, Any], pipeline: Any, examples: Any, options: Any, batches: Any
) -> tuple[dict[str, float], Answers]:
    """Returns Keras' metrics, and the answers, in one pass; compile settings stay as they are."""
    metrics = trainer.metrics(pipeline)
    model = trainer.model(pipeline, examples)
    meter = None
    if metrics is not None:
        meter = _meter(model)
        meter.compile(weighted_metrics=metrics, **trainer.losses(pipeline, examples, options))
    outputs = outputs_of(model, batches, meter=meter)
    answers = trainer.answers(pipeline, batches, examples, outputs)
    if meter is None:
        return {}, answers
    collections.deque(outputs, maxlen=0)  # those that the answers did not need
    figures = sorted(meter.get_metrics_result().items())
    return {name: float(value) for name, value in figures}, answers


def _meter(model: keras.Model) -> keras.Model:
    """Returns a model without layers that takes a model's outputs and returns them."""
    outputs = {
        name: keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)
        for name, tensor in model.output.items()
    }
    return keras.Model(outputs, outputs)
