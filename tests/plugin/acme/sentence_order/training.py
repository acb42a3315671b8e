"""Trains sentence orderers: pairs of texts, labelled 1 if they are in their order and 0 if not."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from acme.sentence_order.pipeline import SentenceOrderer
from keras_transformers.data import Wanted
from keras_transformers.data.text import Examples, TextBatches, majority_share
from keras_transformers.ranges import Rate
from keras_transformers.runs import Training
from keras_transformers.tasks import LabelColumn, Source, Trainer, text_columns

_LABELS = ("0", "1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceOrderOptions(Training):
    """How sentence orderers are trained, by `fit` and by the recipe."""

    label_smoothing: Rate = 0.0  # share of the target that is moved to one half


class SentenceOrderBatches(TextBatches):
    """Batches of (inputs, {"order_logits": float32 (batch,)})."""

    def targets(self, examples: Examples) -> dict[str, Any]:
        """Returns 1.0 for pairs in their order, 0.0 for others: (examples,)."""
        return {"order_logits": tf.constant([float(label) for label in examples.labels or ()])}


def loss(options: SentenceOrderOptions) -> keras.losses.Loss:
    """Returns the loss of `order_logits`."""
    return keras.losses.BinaryCrossentropy(
        from_logits=True, label_smoothing=options.label_smoothing
    )


class SentenceOrderTrainer(Trainer[SentenceOrderer, Examples]):
    """Trains sentence orderers."""

    options = SentenceOrderOptions
    batches = SentenceOrderBatches
    labels = LabelColumn(labels=lambda pipeline: _LABELS)

    def columns(self, pipeline: SentenceOrderer) -> Sequence[Wanted]:
        """Returns the columns text, text_b and label."""
        return text_columns.columns(pipeline)

    def from_columns(
        self, pipeline: SentenceOrderer, columns: Mapping[str, list[Any]], source: Source
    ) -> Examples:
        """Makes examples from columns in memory."""
        return text_columns.examples(columns, source)

    def from_file(
        self, pipeline: SentenceOrderer, path: Path, columns: Mapping[str, str]
    ) -> Examples:
        """Makes examples from a file of tab-separated values."""
        return text_columns.from_file(pipeline, path, columns, labels=_LABELS)

    def losses(
        self, pipeline: SentenceOrderer, examples: Examples, options: SentenceOrderOptions
    ) -> Mapping[str, Any]:
        """Returns the loss."""
        return {"loss": {"order_logits": loss(options)}}

    def metrics(self, pipeline: SentenceOrderer) -> Mapping[str, Any]:
        """Returns the accuracy."""
        return {"order_logits": [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]}

    def baseline(self, pipeline: SentenceOrderer, examples: Examples) -> Mapping[str, float]:
        """Returns the share of the commoner answer."""
        return {"majority": majority_share(examples)}

    def split(self, examples: Examples, share: float) -> tuple[Examples, Examples]:
        """Divides examples into two parts."""
        return text_columns.split_off(examples, share)


TRAINER = SentenceOrderTrainer()
