"""Trains next-sentence predictors: pairs of texts, labelled whether the second follows."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.data.text import Examples, NextSentenceBatches
from keras_transformers.runs import Training
from keras_transformers.runs.fine_tuning import LabelTraining
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.next_sentence.pipeline import NextSentenceClassifier
from keras_transformers.tasks.training import Answers
from keras_transformers.training import TokenCrossentropy

__all__: list[str] = []

_LABELS = ("0", "1")  # 0: the second text follows, as in Google's BERT


class NextSentenceTrainer(text_columns.LabelledTextTrainer[NextSentenceClassifier]):
    """Trains next-sentence predictors."""

    options = LabelTraining
    batches = NextSentenceBatches
    labels = LabelColumn(labels=lambda pipeline: _LABELS)

    def ask(self, pipeline: Any, examples: Examples) -> Answers:
        """Returns the probabilities of both labels."""
        follows = super().ask(pipeline, examples)["probability"]
        return {"probabilities": [(probability, 1 - probability) for probability in follows]}

    def losses(
        self, pipeline: NextSentenceClassifier, examples: Examples, options: Training
    ) -> Mapping[str, Any]:
        return {"loss": {"next_sentence_logits": TokenCrossentropy()}}

    def metrics(self, pipeline: NextSentenceClassifier) -> Mapping[str, Any]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"next_sentence_logits": [accuracy]}


TRAINER = NextSentenceTrainer()
