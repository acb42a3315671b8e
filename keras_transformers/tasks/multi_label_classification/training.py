"""Trains multi-label classifiers: texts, or pairs of texts, with any number of labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.tables.in_memory import LABEL, Wanted
from keras_transformers.data.text import (
    LabelSetBatches,
    LabelSets,
    load_label_sets,
    split_label_sets,
)
from keras_transformers.evaluation import best_thresholds, multi_label_scores
from keras_transformers.runs import outputs_of
from keras_transformers.tasks import text_columns as texts
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Job, check_column_names


def _examples(pipeline: Any, found: Columns, source: Source) -> LabelSets:
    columns = [texts.checked(found, name, source) for name in ("text", "text_b") if name in found]
    texts_b = columns[1] if len(columns) > 1 else None
    return LabelSets(columns[0], texts_b, found["labels"], str(source))


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> LabelSets:
    check_column_names(columns, path, ("text", "text_b", "labels"))
    names: dict[str, Any] = dict(columns)
    return load_label_sets(
        path,
        text_column=names.get("text", 0),
        text_b_column=names.get("text_b", 1) if pipeline.pair else None,
        label_column=names.get("labels", 2 if pipeline.pair else 1),
        labels=pipeline.labels,
    )


def _scores(pipeline: Any, batches: LabelSetBatches, examples: LabelSets) -> dict[str, float]:
    probabilities, has = _measured(pipeline, batches, examples)
    return multi_label_scores(probabilities, has, thresholds=pipeline.thresholds)


def _choose_thresholds(pipeline: Any, batches: LabelSetBatches, examples: LabelSets) -> None:
    """Gives each label the threshold with the highest F1 on validation data."""
    pipeline.thresholds = best_thresholds(*_measured(pipeline, batches, examples))


def _measured(
    pipeline: Any, batches: LabelSetBatches, examples: LabelSets
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each label's probability, and whether the text has the label: (texts, labels)."""
    logits = np.concatenate([output["logits"] for output in outputs_of(pipeline.model, batches)])
    return 1 / (1 + np.exp(-logits.astype(np.float64))), examples.matrix(pipeline.labels)


def _baseline(pipeline: Any, examples: LabelSets) -> dict[str, float]:
    """Returns the micro F1 of predicting the labels that most texts have for every text."""
    has = examples.matrix(pipeline.labels)  # (examples, labels)
    guess = np.broadcast_to(has.mean(axis=0), has.shape)
    shares = sorted(set(has.mean(axis=0).tolist()))
    best = max(
        multi_label_scores(guess, has, thresholds=[share - 1e-9] * has.shape[1])["micro_f1"]
        for share in shares
    )
    return {"micro_f1_of_frequent_labels": best}


JOB = Job(
    task="multi_label_classification",
    columns=lambda pipeline: [
        *texts.text_columns(pipeline),
        Wanted("labels", ("label", *LABEL)),
    ],
    from_columns=_examples,
    from_file=_from_file,
    labels=LabelColumn(name="labels", cells="set"),
    batches=LabelSetBatches,
    losses=lambda given: {"loss": {"logits": keras.losses.BinaryCrossentropy(from_logits=True)}},
    monitor=lambda examples: "val_mean_average_precision",
    scores=_scores,
    baseline=_baseline,
    split=split_label_sets,
    chosen=_choose_thresholds,
)
