"""Trains multiple-choice models: texts with several choices, one of them right."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import ChoiceBatches, ChoiceExamples, choices_of, load_choices
from keras_transformers.ranges import PositiveFloat, PositiveInt
from keras_transformers.tasks.labels import check_one_per_row
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, FitOptions, Job, check_column_names


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(FitOptions):
    """Options of BERT for SWAG: 2e-5 and batches of 16 (Devlin et al. 2019, section 4.4)."""

    batch_size: PositiveInt = 16
    learning_rate: PositiveFloat = 2e-5
    may_compile = False


def _examples(pipeline: Any, found: Columns, source: Source) -> ChoiceExamples:
    check_one_per_row("label", found["label"], source)
    names = ("text", "choices", "label")
    rows = zip(*(found[name] for name in names), strict=True)
    return choices_of([dict(zip(names, row, strict=True)) for row in rows], str(source))


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> ChoiceExamples:
    check_column_names(columns, path, ())
    found = load_choices(path)
    if found.labels is None:
        raise ValueError(f"{path}: no labels: pass a file with labels")
    return found


def _split(found: ChoiceExamples, share: float) -> tuple[ChoiceExamples, ChoiceExamples]:
    train, dev = at_random(len(found), share, f"{found.source}: examples")
    return found.select(train), found.select(dev)


def _chance(pipeline: Any, examples: ChoiceExamples) -> dict[str, float]:
    return {"chance": sum(1 / len(choices) for choices in examples.choices) / len(examples)}


JOB = Job(
    task="multiple_choice",
    columns=lambda pipeline: [
        Wanted("text", ("premise", "question", "sent1")),
        Wanted("choices", ("endings",)),
        Wanted("label", ("answer",)),
    ],
    from_columns=_examples,
    from_file=_from_file,
    own_json=True,
    batches=ChoiceBatches,
    losses=lambda given: {
        "loss": {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    },
    metrics=lambda pipeline: {"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
    monitor=lambda examples: "val_accuracy",
    baseline=_chance,
    split=_split,
    options=_Options,
)
