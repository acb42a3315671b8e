"""Trains classifiers: texts, or pairs of texts, with one label each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.text import Examples, TextBatches, majority_share
from keras_transformers.tasks import text_columns as texts
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Job
from keras_transformers.training import TokenCrossentropy


def _examples(pipeline: Any, found: Columns, source: Source) -> Examples:
    return texts.examples(found, source)


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> Examples:
    return texts.from_file(pipeline, path, columns, labels=pipeline.labels)


JOB = Job(
    task="classification",
    columns=texts.columns,
    from_columns=_examples,
    from_file=_from_file,
    labels=LabelColumn(),
    batches=TextBatches,
    losses=lambda given: {"loss": {"logits": TokenCrossentropy()}},
    metrics=lambda pipeline: {"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
    monitor=lambda examples: "val_accuracy",
    baseline=lambda pipeline, examples: {"majority": majority_share(examples)},
    split=texts.split_off,
)
