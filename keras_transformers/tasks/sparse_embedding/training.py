"""Trains sparse embedders: queries with documents, and possibly a teacher's scores."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.tables.in_memory import TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import (
    TextPairBatches,
    TextPairs,
    load_text_pairs,
    split_text_pairs,
)
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.search import search_report
from keras_transformers.ranges import NonNegativeFloat, PositiveFloat
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.embedding.searching import bm25_scores, relevant
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.sparse_embedding.head import grouped_sparse_embedder
from keras_transformers.tasks.sparse_embedding.pipeline import SparseEmbedder
from keras_transformers.tasks.sparse_embedding.searching import search_scores, searched
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names
from keras_transformers.training import InBatchContrast, MarginDistillation, WithFlops

__all__ = ["SparseEmbeddingOptions"]

_NAMES = ("text", "text_b", "negative")
_BATCH_SIZE = 64  # texts in a call, to measure


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseEmbeddingOptions(Training):
    """Options of SPLADE, with the rate and the weights of sentence-transformers' SparseEncoders.

    Formal et al. 2021, arXiv:2109.10086; the rate is 2e-5.
    """

    temperature: PositiveFloat = 1.0  # divides the dot products
    symmetric: bool = False  # documents also search for their queries
    # the factors of the FLOPS regularizer: higher ones give fewer weights above 0
    query_regularizer: NonNegativeFloat = 5e-5
    document_regularizer: NonNegativeFloat = 3e-5

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5


@dataclasses.dataclass(frozen=True)
class TaughtPairs(TextPairs):
    """Queries with documents, and possibly a teacher's scores.

    Attributes:
        teacher: for each query the scores of its document and of its negatives; () for none.
    """

    teacher: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        count = 1 + len(self.negatives[0] if self.negatives else ())
        reasons = {
            row: f"{len(scores)} scores for {count} documents, text_b and its negatives; margins "
            "need a score for each, and at least one negative"
            for row, scores in enumerate(self.teacher)
            if count < 2 or len(scores) != count
        }
        check_rows(self.source, reasons)


class _Batches(TextPairBatches):
    """Batches of (inputs, {"sparse_embedding": targets}) for `grouped_sparse_embedder`.

    The targets are those of `InBatchContrast`, or the teacher's scores.
    """

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the pairs at `indices`, int32 (batch,); runs in graphs."""
        inputs, targets = super().batch(indices)
        teacher = getattr(self.pairs, "teacher", ())
        if len(teacher):
            return inputs, {"sparse_embedding": tf.gather(tf.constant(teacher), indices)}
        return inputs, {"sparse_embedding": targets["embedding"]}

    @staticmethod
    def _prompts(pipeline: Any, *, scored: bool) -> list[str | None]:
        return [pipeline.prompt_of("query"), pipeline.prompt_of("document")]


class SparseEmbeddingTrainer(Trainer[SparseEmbedder, TextPairs]):
    """Trains sparse embedders of texts."""

    options = SparseEmbeddingOptions
    batches = _Batches

    def columns(self, pipeline: SparseEmbedder) -> Sequence[Wanted]:
        return [
            Wanted("text", TEXT_A),
            Wanted("text_b", ("positive", "answer", "document", "context", *TEXT_B)),
            Wanted("negative", ("negatives",), required=False),
            Wanted("score", ("scores", "label", "labels"), required=False),
        ]

    def from_columns(
        self, pipeline: SparseEmbedder, columns: Columns, source: Source
    ) -> TaughtPairs:
        texts, texts_b = (
            text_columns.checked(columns, name, source) for name in ("text", "text_b")
        )
        negatives, teacher = (
            _lists(columns[name], kind, what, source) if columns.get(name) else ()
            for name, kind, what in (
                ("negative", str, "a text that does not belong to the first, or a list of them"),
                ("score", int | float, "a list of a teacher's scores: of text_b and each negative"),
            )
        )
        scores = [list(map(float, row)) for row in teacher]
        return TaughtPairs(texts, texts_b, negatives, source=str(source), teacher=scores)

    def from_file(
        self, pipeline: SparseEmbedder, path: Path, columns: Mapping[str, str]
    ) -> TaughtPairs:
        check_column_names(columns, path, _NAMES)
        pairs = load_text_pairs(
            path,
            text_column=columns.get("text", 0),
            text_b_column=columns.get("text_b", 1),
            negative_columns=[columns["negative"]] if "negative" in columns else (),
        )
        return TaughtPairs(pairs.texts, pairs.partners, pairs.negatives, source=pairs.source)

    def model(self, pipeline: SparseEmbedder, examples: TextPairs) -> keras.Model:
        return grouped_sparse_embedder(pipeline.training_model(), query_table=pipeline.query_table)

    def losses(
        self, pipeline: SparseEmbedder, examples: TextPairs, options: SparseEmbeddingOptions
    ) -> Mapping[str, Any]:
        loss: keras.losses.Loss = InBatchContrast(
            temperature=options.temperature, symmetric=options.symmetric, similarity="dot"
        )
        if len(getattr(examples, "teacher", ())):
            loss = MarginDistillation()
        sparse = WithFlops(
            loss,
            query_weight=options.query_regularizer,
            document_weight=options.document_regularizer,
        )
        return {"loss": {"sparse_embedding": sparse}}

    def monitor(self, examples: TextPairs) -> str:
        return "val_ndcg_at_10"

    def answers(
        self,
        pipeline: SparseEmbedder,
        batches: TextPairBatches,
        examples: TextPairs,
        outputs: Iterable[Any],
    ) -> Answers:
        def embed(texts: list[str], side: str) -> Any:
            options = {"side": side} if side in pipeline.sides else {}
            return pipeline(texts, batch_size=_BATCH_SIZE, **options)

        return searched(embed, examples)

    def answer_scores(
        self, pipeline: SparseEmbedder, answers: Answers, examples: TextPairs
    ) -> Mapping[str, float]:
        return search_scores(answers, examples)

    def ask(self, pipeline: Any, examples: TextPairs) -> Answers:
        # An export has a signature for each side that differs.
        return searched(
            lambda texts, side: pipeline(texts, prompt_name=side, batch_size=_BATCH_SIZE), examples
        )

    def report(self, pipeline: Any, answers: Answers, examples: TextPairs) -> Report:
        queries = list(examples.queries())
        documents = [examples.documents()] * len(queries)  # the same list
        return search_report(
            answers["similarities"], relevant(examples), queries, documents, title=pipeline.task
        )

    def baseline(self, pipeline: SparseEmbedder, examples: TextPairs) -> Mapping[str, float]:
        """Returns the same metrics of BM25, which has an inverted index too."""
        return bm25_scores(examples)

    def split(self, examples: TextPairs, share: float) -> tuple[TextPairs, TextPairs]:
        return split_text_pairs(examples, share)


def _lists(cells: Sequence[Any], kind: Any, what: str, source: Source) -> list[list[Any]]:
    """Returns cells as lists of values of a kind; BadRowsError for others."""
    lists = [cell if isinstance(cell, list | tuple) else [cell] for cell in cells]
    reasons = {
        row: f"{cells[row]!r:.80}, expected {what}"
        for row, values in enumerate(lists)
        if not all(isinstance(value, kind) for value in values)
    }
    check_rows(str(source), reasons)
    return list(map(list, lists))


TRAINER = SparseEmbeddingTrainer()
