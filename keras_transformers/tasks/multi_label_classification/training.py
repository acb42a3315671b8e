"""Trains multi-label classifiers: texts, or pairs of texts, with any number of labels."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.tables.in_memory import LABEL, Wanted
from keras_transformers.data.text import (
    LabelSetBatches,
    LabelSets,
    load_label_sets,
)
from keras_transformers.evaluation import best_thresholds, multi_label_scores
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.several_labels import (
    MULTI_LABEL_FIGURES,
    multi_label_report,
)
from keras_transformers.runs import outputs_of
from keras_transformers.runs.fine_tuning import LabelTraining
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.few_shot import FewShotTrainer
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.multi_label_classification.pipeline import MultiLabelClassifier
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names
from keras_transformers.training.losses import ElementwiseLoss

__all__: list[str] = []


class MultiLabelClassificationTrainer(Trainer[MultiLabelClassifier, LabelSets]):
    """Trains classifiers that give texts any number of labels."""

    options = LabelTraining
    batches = LabelSetBatches
    monitored = "val_mean_average_precision"
    labels = LabelColumn(name="labels", cells="set")
    takes_weights = True
    report_figures = MULTI_LABEL_FIGURES

    def columns(self, pipeline: MultiLabelClassifier) -> Sequence[Wanted]:
        return [*text_columns.text_columns(pipeline), Wanted("labels", ("label", *LABEL))]

    def from_columns(
        self, pipeline: MultiLabelClassifier, columns: Columns, source: Source
    ) -> LabelSets:
        texts = [
            text_columns.checked(columns, name, source)
            for name in ("text", "text_b")
            if name in columns
        ]
        texts_b = texts[1] if len(texts) > 1 else None
        return LabelSets(texts[0], texts_b, columns["labels"], str(source))

    def from_file(
        self, pipeline: MultiLabelClassifier, path: Path, columns: Mapping[str, str]
    ) -> LabelSets:
        check_column_names(columns, path, ("text", "text_b", "labels", "weight"))
        names: dict[str, Any] = dict(columns)
        return load_label_sets(
            path,
            text_column=names.get("text", 0),
            text_b_column=names.get("text_b", 1) if pipeline.pair else None,
            label_column=names.get("labels", 2 if pipeline.pair else 1),
            weight_column=names.get("weight"),
            labels=pipeline.labels,
        )

    def few_shot(self) -> "FewShotMultiLabelTrainer":
        return FewShotMultiLabelTrainer()

    def losses(
        self, pipeline: MultiLabelClassifier, examples: LabelSets, options: LabelTraining
    ) -> Mapping[str, Any]:
        loss: keras.losses.Loss = keras.losses.BinaryCrossentropy(from_logits=True)
        if options.class_weight is not None:  # each label has a weight of its own
            loss = ElementwiseLoss(loss)
        return {"loss": {"logits": loss}}

    def answers(
        self,
        pipeline: MultiLabelClassifier,
        batches: LabelSetBatches,
        examples: LabelSets,
        outputs: Iterable[Any],
    ) -> Answers:
        logits = text_columns.logits_of(outputs)
        return {"probabilities": 1 / (1 + np.exp(-logits / pipeline.temperature))}

    def logits(
        self,
        pipeline: MultiLabelClassifier,
        batches: LabelSetBatches,
        examples: LabelSets,
        outputs: Iterable[Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns a row of two classes, no and yes, for each label of each example."""
        logits = text_columns.logits_of(outputs).ravel()
        has = examples.matrix(pipeline.labels).ravel()
        return np.stack([np.zeros_like(logits), logits], axis=1), has.astype(np.int64)

    def answer_scores(
        self, pipeline: MultiLabelClassifier, answers: Answers, examples: LabelSets
    ) -> Mapping[str, float]:
        has = examples.matrix(pipeline.labels)
        return multi_label_scores(answers["probabilities"], has, thresholds=pipeline.thresholds)

    def inputs(self, examples: LabelSets) -> Mapping[str, Sequence[Any]]:
        return text_columns.inputs(examples)

    def report(self, pipeline: Any, answers: Answers, examples: LabelSets) -> Report:
        return multi_label_report(
            answers["probabilities"],
            examples.matrix(pipeline.labels),
            pipeline.labels,
            thresholds=pipeline.thresholds,
            texts=text_columns.texts_of(examples),
            temperature=pipeline.temperature,
            abstain_below=pipeline.abstain_below,
            title=pipeline.task,
        )

    def baseline(self, pipeline: MultiLabelClassifier, examples: LabelSets) -> Mapping[str, float]:
        """Returns the micro F1 of predicting the labels that most texts have for every text."""
        has = examples.matrix(pipeline.labels)  # (examples, labels)
        guess = np.broadcast_to(has.mean(axis=0), has.shape)
        shares = sorted(set(has.mean(axis=0).tolist()))
        best = max(
            multi_label_scores(guess, has, thresholds=[share - 1e-9] * has.shape[1])["micro_f1"]
            for share in shares
        )
        return {"micro_f1_of_frequent_labels": best}

    def choose(
        self, pipeline: MultiLabelClassifier, batches: LabelSetBatches, examples: LabelSets
    ) -> None:
        """Gives each label the threshold with the highest F1 on validation data."""
        outputs = outputs_of(self.model(pipeline, examples), batches)
        answers = self.answers(pipeline, batches, examples, outputs)
        has = examples.matrix(pipeline.labels)
        pipeline.thresholds = tuple(best_thresholds(answers["probabilities"], has))


class FewShotMultiLabelTrainer(FewShotTrainer, MultiLabelClassificationTrainer):
    """Trains multi-label classifiers on a few texts per label."""


TRAINER = MultiLabelClassificationTrainer()
