"""Trains question answerers: questions with contexts that contain the answers."""

import dataclasses
from collections.abc import Mapping
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
from keras_transformers.ranges import PositiveFloat, PositiveInt
from keras_transformers.runs import outputs_of
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, FitOptions, Given, Job, check_column_names

_OUTPUTS = ("start_logits", "end_logits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(FitOptions):
    """Options of BERT for SQuAD 1.1: 5e-5, batches of 32 (Devlin et al. 2019, section 4.2)."""

    batch_size: PositiveInt = 16
    learning_rate: PositiveFloat = 5e-5


def _examples(pipeline: Any, found: Columns, source: Source) -> Questions:
    ids = found.get("id") or [str(row) for row in range(len(found["question"]))]
    rows = [
        {"id": id_, "question": question, "context": context, "answers": answers}
        for id_, question, context, answers in zip(
            ids, found["question"], found["context"], found["answers"], strict=True
        )
    ]
    return questions_of(rows, str(source))


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> Questions:
    check_column_names(columns, path, ())
    return load_squad(path)


def _batches(questions: Questions, pipeline: Any, **options: Any) -> QuestionBatches:
    # Without shuffling, the batches are for measuring, which needs windows without an answer too.
    return QuestionBatches(questions, pipeline, targets=options.get("shuffle", True), **options)


def _losses(given: Given) -> dict[str, Any]:
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Half of each: the loss is their mean, as in BERT.
    return {
        "loss": dict.fromkeys(_OUTPUTS, crossentropy),
        "loss_weights": dict.fromkeys(_OUTPUTS, 0.5),
    }


def _scores(pipeline: Any, batches: QuestionBatches, examples: Any) -> dict[str, float]:
    threshold = pipeline.config().get("no_answer_threshold")
    found = answers_from_logits(batches, outputs_of(pipeline.model, batches))
    answers = answer_texts(found, no_answer_threshold=threshold)
    references = examples.references()
    if all(references.values()):
        result = squad_scores(answers, references)
    else:
        result = squad_v2_scores(answers, references).overall
    return {"exact_match": result.exact_match, "f1": result.f1}


def _split(found: Questions, share: float) -> tuple[Questions, Questions]:
    train, dev = split_questions(found, {"train": 1 - share, "dev": share}, seed=0).values()
    return train, dev


JOB = Job(
    task="question_answering",
    columns=lambda pipeline: [
        Wanted("question"),
        Wanted("context"),
        Wanted("answers", ("answer",)),
        Wanted("id", required=False),
    ],
    from_columns=_examples,
    from_file=_from_file,
    own_json=True,
    batches=_batches,
    losses=_losses,
    monitor=lambda examples: "val_f1",
    scores=_scores,
    split=_split,
    options=_Options,
)
