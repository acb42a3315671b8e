"""What the training of tasks that find texts shares: their columns, reports and baseline."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.tables.in_memory import TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import TextPairs, load_text_pairs, split_text_pairs
from keras_transformers.evaluation import retrieval_scores
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.search import search_report
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.embedding.searching import bm25_scores, relevant
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import (
    Answers,
    Columns,
    PipelineT,
    Trainer,
    check_column_names,
)

__all__: list[str] = []

_NAMES = ("text", "text_b", "negative")
_DOCUMENT = ("positive", "answer", "document", "context", "passage", *TEXT_B)


class SearchTrainer(Trainer[PipelineT, TextPairs]):
    """Trains on queries with documents that answer them, negatives and a teacher's scores.

    A subclass's `answers` and `ask` return `similarities`, each query's scores of all documents:
    float32 (queries, documents).
    """

    def columns(self, pipeline: PipelineT) -> Sequence[Wanted]:
        return [
            Wanted("text", TEXT_A),
            Wanted("text_b", _DOCUMENT),
            Wanted("negative", ("negatives",), required=False),
            Wanted("score", ("scores", "label", "labels"), required=False),
        ]

    def from_columns(self, pipeline: PipelineT, columns: Columns, source: Source) -> TextPairs:
        texts, texts_b = (
            text_columns.checked(columns, name, source) for name in ("text", "text_b")
        )
        negatives, teacher = (
            _lists(columns[name], kind, what, source) if columns.get(name) else ()
            for name, kind, what in (
                ("negative", str, "a text that does not answer the first, or a list of them"),
                ("score", int | float, "a list of a teacher's scores: of text_b and each negative"),
            )
        )
        scores = [list(map(float, row)) for row in teacher]
        return TextPairs(texts, texts_b, negatives, source=str(source), teacher=scores)

    def from_file(self, pipeline: PipelineT, path: Path, columns: Mapping[str, str]) -> TextPairs:
        check_column_names(columns, path, _NAMES)
        return load_text_pairs(
            path,
            text_column=columns.get("text", 0),
            text_b_column=columns.get("text_b", 1),
            negative_columns=[columns["negative"]] if "negative" in columns else (),
        )

    def monitor(self, examples: TextPairs) -> str:
        return "val_ndcg_at_10"

    def answer_scores(
        self, pipeline: PipelineT, answers: Answers, examples: TextPairs
    ) -> Mapping[str, float]:
        return retrieval_scores(answers["similarities"], relevant(examples))

    def report(self, pipeline: Any, answers: Answers, examples: TextPairs) -> Report:
        queries = list(examples.queries())
        documents = [examples.documents()] * len(queries)  # the same list
        return search_report(
            answers["similarities"], relevant(examples), queries, documents, title=pipeline.task
        )

    def baseline(self, pipeline: PipelineT, examples: TextPairs) -> Mapping[str, float]:
        return bm25_scores(examples)

    def split(self, examples: TextPairs, share: float) -> tuple[TextPairs, TextPairs]:
        return split_text_pairs(examples, share)


def _lists(cells: Sequence[Any], kind: Any, what: str, source: Source) -> list[list[Any]]:
    """Returns cells as lists of values of a kind; BadRowsError for others."""
    lists = [list(cell) if isinstance(cell, list | tuple) else [cell] for cell in cells]
    reasons = {
        row: f"{cells[row]!r:.80}, expected {what}"
        for row, values in enumerate(lists)
        if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
    }
    check_rows(str(source), reasons)
    return lists
