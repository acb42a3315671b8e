"""Trains classifiers: texts, or pairs of texts, with one label each."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_transformers.data.text import Examples, TextBatches
from keras_transformers.ranges import Rate
from keras_transformers.runs.fine_tuning import LabelTraining
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.classification.pipeline import TextClassifier
from keras_transformers.tasks.few_shot import FewShotTrainer
from keras_transformers.tasks.training import Answers
from keras_transformers.training import TokenCrossentropy

__all__ = ["ClassificationOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationOptions(LabelTraining):
    """How classifiers are trained."""

    label_smoothing: Rate = 0.0  # share of the target spread evenly over the labels


class ClassificationTrainer(text_columns.LabelledTextTrainer[TextClassifier]):
    """Trains classifiers of texts."""

    options = ClassificationOptions
    batches = TextBatches

    def few_shot(self) -> "FewShotClassificationTrainer":
        return FewShotClassificationTrainer()

    def losses(
        self, pipeline: TextClassifier, examples: Examples, options: ClassificationOptions
    ) -> Mapping[str, Any]:
        return {"loss": {"logits": TokenCrossentropy(label_smoothing=options.label_smoothing)}}

    def metrics(self, pipeline: TextClassifier) -> Mapping[str, Any]:
        return {"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]}


class FewShotClassificationTrainer(FewShotTrainer, ClassificationTrainer):
    """Trains classifiers on a few texts per label."""

    def answer_scores(
        self, pipeline: TextClassifier, answers: Answers, examples: Examples
    ) -> Mapping[str, float]:
        label_ids = answers["probabilities"].argmax(axis=1)
        return {"accuracy": float(np.mean(label_ids == self._ids(pipeline, examples)))}


TRAINER = ClassificationTrainer()
