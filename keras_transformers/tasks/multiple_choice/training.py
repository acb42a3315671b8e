"""Trains multiple-choice models: texts with several choices, one of them right."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import ChoiceBatches, ChoiceExamples, choices_of, load_choices
from keras_transformers.evaluation.reports.choices import CHOICE_FIGURES, choice_report
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.temperature import softmax
from keras_transformers.ranges import PositiveInt
from keras_transformers.runs import Confidence, Training
from keras_transformers.tasks.labels import check_one_per_row
from keras_transformers.tasks.multiple_choice.pipeline import MultipleChoice
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names

__all__ = ["MultipleChoiceOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceOptions(Confidence, Training):
    """Options of BERT for SWAG: 2e-5 and batches of 16 (Devlin et al. 2019, section 4.4)."""

    batch_size: PositiveInt = 16

    rate: ClassVar[float] = 2e-5


class MultipleChoiceTrainer(Trainer[MultipleChoice, ChoiceExamples]):
    """Trains models that choose one of several texts."""

    options = MultipleChoiceOptions
    batches = ChoiceBatches
    own_json = True
    takes_weights = True
    may_compile = False
    report_figures = CHOICE_FIGURES

    def columns(self, pipeline: MultipleChoice) -> Sequence[Wanted]:
        return [
            Wanted("text", ("premise", "question", "sent1")),
            Wanted("choices", ("endings",)),
            Wanted("label", ("answer",)),
        ]

    def from_columns(
        self, pipeline: MultipleChoice, columns: Columns, source: Source
    ) -> ChoiceExamples:
        check_one_per_row("label", columns["label"], source)
        names = ("text", "choices", "label")
        rows = zip(*(columns[name] for name in names), strict=True)
        return choices_of([dict(zip(names, row, strict=True)) for row in rows], str(source))

    def from_file(
        self, pipeline: MultipleChoice, path: Path, columns: Mapping[str, str]
    ) -> ChoiceExamples:
        check_column_names(columns, path, ())
        examples = load_choices(path)
        if examples.labels is None:
            raise ValueError(f"{path}: no labels: pass a file with labels")
        return examples

    def losses(
        self, pipeline: MultipleChoice, examples: ChoiceExamples, options: Training
    ) -> Mapping[str, Any]:
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": {"logits": crossentropy}}

    def metrics(self, pipeline: MultipleChoice) -> Mapping[str, Any]:
        return {"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]}

    def answers(
        self,
        pipeline: MultipleChoice,
        batches: ChoiceBatches,
        examples: ChoiceExamples,
        outputs: Iterable[Any],
    ) -> Answers:
        logits = _of_choices(examples, outputs)
        return {"probabilities": [softmax(row, pipeline.temperature) for row in logits]}

    def logits(
        self,
        pipeline: MultipleChoice,
        batches: ChoiceBatches,
        examples: ChoiceExamples,
        outputs: Iterable[Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = _of_choices(examples, outputs)
        logits = np.full((len(rows), max(map(len, rows))), -np.inf)
        for row, values in zip(logits, rows, strict=True):
            row[: len(values)] = values
        return logits, np.asarray(examples.labels)

    def inputs(self, examples: ChoiceExamples) -> Mapping[str, Sequence[Any]]:
        return {"text": examples.texts, "choices": examples.choices}

    def report(self, pipeline: Any, answers: Answers, examples: ChoiceExamples) -> Report:
        return choice_report(
            answers["probabilities"],
            examples.labels or (),
            texts=examples.texts,
            choices=examples.choices,
            temperature=pipeline.temperature,
            abstain_below=pipeline.abstain_below,
            title=pipeline.task,
        )

    def baseline(self, pipeline: MultipleChoice, examples: ChoiceExamples) -> Mapping[str, float]:
        return {"chance": sum(1 / len(choices) for choices in examples.choices) / len(examples)}


def _of_choices(examples: ChoiceExamples, outputs: Iterable[Any]) -> list[np.ndarray]:
    """Returns the logits of each text's choices: float64 (choices,)."""
    rows = [row for output in outputs for row in np.asarray(output["logits"], np.float64)]
    return [row[: len(texts)] for row, texts in zip(rows, examples.choices, strict=True)]


TRAINER = MultipleChoiceTrainer()
