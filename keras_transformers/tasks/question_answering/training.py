"""Trains question answerers: questions with contexts that contain the answers."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import (
    QuestionBatches,
    Questions,
    answer_texts,
    answers_from_logits,
    load_squad,
    questions_of,
    split_questions,
)
from keras_transformers.evaluation import squad_scores, squad_v2_scores
from keras_transformers.evaluation.reports.questions import QUESTION_FIGURES, question_report
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.ranges import PositiveInt
from keras_transformers.runs import Training
from keras_transformers.tasks.question_answering.pipeline import QuestionAnswerer
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names

__all__ = ["QuestionAnsweringOptions"]

_OUTPUTS = ("start_logits", "end_logits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnsweringOptions(Training):
    """Options of BERT for SQuAD 1.1: 5e-5, batches of 32 (Devlin et al. 2019, section 4.2)."""

    batch_size: PositiveInt = 16


class QuestionAnsweringTrainer(Trainer[QuestionAnswerer, Questions]):
    """Trains models that find answers in texts."""

    options = QuestionAnsweringOptions
    monitored = "val_f1"
    own_json = True
    takes_weights = True
    report_figures = QUESTION_FIGURES

    def columns(self, pipeline: QuestionAnswerer) -> Sequence[Wanted]:
        return [
            Wanted("question"),
            Wanted("context"),
            Wanted("answers", ("answer",)),
            Wanted("id", required=False),
        ]

    def from_columns(
        self, pipeline: QuestionAnswerer, columns: Columns, source: Source
    ) -> Questions:
        ids = columns.get("id") or [str(row) for row in range(len(columns["question"]))]
        rows = [
            {"id": id_, "question": question, "context": context, "answers": answers}
            for id_, question, context, answers in zip(
                ids, columns["question"], columns["context"], columns["answers"], strict=True
            )
        ]
        return questions_of(rows, str(source))

    def from_file(
        self, pipeline: QuestionAnswerer, path: Path, columns: Mapping[str, str]
    ) -> Questions:
        check_column_names(columns, path, ())
        return load_squad(path)

    def batches(
        self, examples: Questions, pipeline: QuestionAnswerer, **options: Any
    ) -> QuestionBatches:
        # In order, they are for measuring, which needs windows without an answer too.
        return QuestionBatches(examples, pipeline, targets=options.get("shuffle", True), **options)

    def losses(
        self, pipeline: QuestionAnswerer, examples: Questions, options: Training
    ) -> Mapping[str, Any]:
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # Half of each: the loss is their mean, as in BERT.
        return {
            "loss": dict.fromkeys(_OUTPUTS, crossentropy),
            "loss_weights": dict.fromkeys(_OUTPUTS, 0.5),
        }

    def answers(
        self,
        pipeline: QuestionAnswerer,
        batches: QuestionBatches,
        examples: Questions,
        outputs: Iterable[Any],
    ) -> Answers:
        logits = answers_from_logits(batches, outputs)
        texts = answer_texts(logits, no_answer_threshold=pipeline.no_answer_threshold)
        return {"answer": [texts[question_id] for question_id in examples.ids]}

    def inputs(self, examples: Questions) -> Mapping[str, Sequence[Any]]:
        contexts = [examples.contexts[i] for i in examples.context_of]
        return {"question": examples.questions, "context": contexts}

    def report(self, pipeline: Any, answers: Answers, examples: Questions) -> Report:
        references = list(examples.references().values())
        return question_report(
            answers["answer"], references, examples.questions, title=pipeline.task
        )

    def answer_scores(
        self, pipeline: QuestionAnswerer, answers: Answers, examples: Questions
    ) -> Mapping[str, float]:
        texts = dict(zip(examples.ids, answers["answer"], strict=True))
        references = examples.references()
        if all(references.values()):
            result = squad_scores(texts, references)
        else:
            result = squad_v2_scores(texts, references).overall
        return {"exact_match": result.exact_match, "f1": result.f1}

    def with_targets(
        self, pipeline: QuestionAnswerer, batches: QuestionBatches, examples: Questions
    ) -> QuestionBatches:
        return QuestionBatches(
            dataclasses.replace(examples, weights=None),
            pipeline,
            batch_size=batches.batch_size,
            shuffle=False,
            static_shapes=batches.static_shapes,
        )

    def split(self, examples: Questions, share: float) -> tuple[Questions, Questions]:
        shares = {"train": 1 - share, "dev": share}
        train, dev = split_questions(examples, shares, seed=0).values()
        return train, dev


TRAINER = QuestionAnsweringTrainer()
