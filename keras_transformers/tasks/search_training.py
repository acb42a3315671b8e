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
        negatives = [x if isinstance(x, list) else [x] for x in columns.get("negative") or ()]
        teacher = columns.get("score") or ()
        reasons = {
            row: f"{negatives[row]!r:.80}, expected a text that does not answer the first, or a "
            "list of them"
            for row, values in enumerate(negatives)
            if not all(isinstance(value, str) for value in values)
        }
        reasons |= {
            row: f"{values!r:.80}, expected a list with a teacher's scores of text_b and of "
            "each negative"
            for row, values in enumerate(teacher)
            if not isinstance(values, list) or not all(map(_is_number, values))
        }
        check_rows(str(source), reasons)
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
