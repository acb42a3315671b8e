"""Trains taggers: sentences split into words, with one label per word."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.text import Sentences, TaggedBatches, load_conll
from keras_transformers.evaluation import TokenAccuracy, entity_scores
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.tagging import TAGGING_FIGURES, tagging_report
from keras_transformers.evaluation.temperature import softmax
from keras_transformers.runs import Training
from keras_transformers.runs.fine_tuning import LabelTraining
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.tagging.pipeline import Tagger
from keras_transformers.tasks.training import Answers, Columns, Trainer
from keras_transformers.training import TokenCrossentropy

__all__: list[str] = []


def _mistake(words: Any, tags: Any) -> str:
    """Returns what is wrong with a row, or ""."""
    for name, value in (("words", words), ("labels", tags)):
        if not isinstance(value, list | tuple):
            return f"{name} is {value!r:.60}, expected a list, one per word"
    if len(words) != len(tags):
        return f"{len(tags)} labels for {len(words)} words: pass one per word"
    if wrong := [word for word in words if not isinstance(word, str)]:
        return f"the word {wrong[0]!r:.60} is not a string"
    return ""


class TaggingTrainer(Trainer[Tagger, Sentences]):
    """Trains taggers of words."""

    options = LabelTraining
    batches = TaggedBatches
    monitored = "val_entity_f1"
    labels = LabelColumn(name="labels", cells="words")
    takes_weights = True
    report_figures = TAGGING_FIGURES

    def columns(self, pipeline: Tagger) -> Sequence[Wanted]:
        return [
            Wanted("words", ("tokens", "sentence")),
            Wanted("labels", ("ner_tags", "tags", "label", "pos_tags")),
        ]

    def from_columns(self, pipeline: Tagger, columns: Columns, source: Source) -> Sentences:
        mistakes = map(_mistake, columns["words"], columns["labels"])
        check_rows(str(source), {row: wrong for row, wrong in enumerate(mistakes) if wrong})
        words = [list(words) for words in columns["words"]]
        return Sentences(words, columns["labels"], str(source))

    def from_file(self, pipeline: Tagger, path: Path, columns: Mapping[str, str]) -> Sentences:
        if columns:
            raise ValueError(
                f"columns={dict(columns)} for {path}: a file of words has the word in its first "
                "column and the label in its last; read others with data.text.load_conll and pass "
                "their words and labels"
            )
        return load_conll(path, labels=pipeline.labels)

    def losses(self, pipeline: Tagger, examples: Sentences, options: Training) -> Mapping[str, Any]:
        return {"loss": {"logits": TokenCrossentropy()}}

    def metrics(self, pipeline: Tagger) -> Mapping[str, Any]:
        return {"logits": [TokenAccuracy("accuracy")]}

    def answers(
        self,
        pipeline: Tagger,
        batches: TaggedBatches,
        examples: Sentences,
        outputs: Iterable[Any],
    ) -> Answers:
        logits = batches.word_logits(outputs)
        scores = [softmax(words, pipeline.temperature).max(axis=1) for words in logits]
        # As in answers, 0 for words without tokens.
        return {
            "labels": batches.named(logits),
            "scores": [np.nan_to_num(row).tolist() for row in scores],
        }

    def logits(
        self,
        pipeline: Tagger,
        batches: TaggedBatches,
        examples: Sentences,
        outputs: Iterable[Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits of words, NaN without tokens, and the indices of their labels."""
        ids = [pipeline.labels.index(label) for row in examples.labels or () for label in row]
        return np.concatenate(batches.word_logits(outputs)), np.array(ids)

    def answer_scores(
        self, pipeline: Tagger, answers: Answers, examples: Sentences
    ) -> Mapping[str, float]:
        return {"entity_f1": entity_scores(answers["labels"], examples.labels or ()).overall.f1}

    def ask(self, pipeline: Any, examples: Sentences) -> Answers:
        rows = pipeline.rows({"words": examples.words})
        # A row is as long as the longest of its batch.
        tags = list(zip(rows, examples.words, strict=True))
        return {
            name: [row[name][: len(words)] for row, words in tags] for name in ("labels", "scores")
        }

    def report(self, pipeline: Any, answers: Answers, examples: Sentences) -> Report:
        references, words = examples.labels or (), examples.words
        return tagging_report(
            answers["labels"],
            references,
            words=words,
            probabilities=answers["scores"],
            abstain_below=pipeline.abstain_below,
            title=pipeline.task,
        )


TRAINER = TaggingTrainer()
