"""Trains taggers: sentences split into words, with one label per word."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import Sentences, TaggedBatches, load_conll
from keras_transformers.evaluation import TokenAccuracy, entity_scores
from keras_transformers.runs import outputs_of
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Job
from keras_transformers.training import TokenCrossentropy


def _examples(pipeline: Any, found: Columns, source: Source) -> Sentences:
    for row, (words, tags) in enumerate(zip(found["words"], found["labels"], strict=True)):
        for name, value in (("words", words), ("labels", tags)):
            if not isinstance(value, list | tuple):
                raise ValueError(
                    f"{source.row(row)}: {name} is {value!r:.60}, expected a list, one per word"
                )
        if len(words) != len(tags):
            raise ValueError(f"{source.row(row)}: {len(tags)} labels for {len(words)} words")
        if wrong := [word for word in words if not isinstance(word, str)]:
            raise ValueError(f"{source.row(row)}: the word {wrong[0]!r:.60} is not a string")
    return Sentences([list(words) for words in found["words"]], found["labels"], str(source))


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> Sentences:
    if columns:
        raise ValueError(
            f"columns={dict(columns)} for {path}: a file of words has the word in its first column "
            "and the label in its last; read others with data.text.load_conll and pass their words "
            "and labels"
        )
    return load_conll(path, labels=pipeline.labels)


def _scores(pipeline: Any, batches: TaggedBatches, examples: Any) -> dict[str, float]:
    found = batches.word_labels(outputs_of(pipeline.model, batches))
    return {"entity_f1": entity_scores(found, examples.labels).overall.f1}


def _split(found: Sentences, share: float) -> tuple[Sentences, Sentences]:
    def part(indices: list[int]) -> Sentences:
        words, labels = ([rows[i] for i in indices] for rows in (found.words, found.labels or ()))
        return Sentences(words, labels, found.source)

    train, dev = at_random(len(found), share, f"{found.source}: sentences")
    return part(train), part(dev)


JOB = Job(
    task="tagging",
    columns=lambda pipeline: [
        Wanted("words", ("tokens", "sentence")),
        Wanted("labels", ("ner_tags", "tags", "label", "pos_tags")),
    ],
    from_columns=_examples,
    from_file=_from_file,
    labels=LabelColumn(name="labels", cells="words"),
    batches=TaggedBatches,
    losses=lambda given: {"loss": {"logits": TokenCrossentropy()}},
    metrics=lambda pipeline: {"logits": [TokenAccuracy("accuracy")]},
    monitor=lambda examples: "val_entity_f1",
    scores=_scores,
    split=_split,
)
