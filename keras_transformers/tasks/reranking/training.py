"""Trains rerankers: queries with documents, labelled or scored by how well they answer."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np

from keras_transformers.data.splits import by_keys
from keras_transformers.data.tables.in_memory import TEXT_A, Wanted
from keras_transformers.data.text import Examples, RankingBatches
from keras_transformers.data.text.ranking import are_judgements
from keras_transformers.evaluation import bm25_similarities, glue_scores, retrieval_scores
from keras_transformers.evaluation.reports.regression import regression_report
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.search import search_report
from keras_transformers.ranges import PositiveInt
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.regression.training import numbers
from keras_transformers.tasks.reranking.head import grouped_scorer
from keras_transformers.tasks.reranking.mining import with_mined
from keras_transformers.tasks.reranking.pipeline import Reranker
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer
from keras_transformers.training import RankingCrossentropy
from keras_transformers.training.losses import ElementwiseLoss

__all__ = ["RerankingOptions"]

_DOCUMENT = ("document", "passage", "answer", "context", "text2", "sentence2")
_SCORE = ("label", "labels", "relevance")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingOptions(Training):
    """Options with the rate of sentence-transformers' CrossEncoders, 2e-5."""

    distill: bool = False  # learn a teacher's scores, taken before its activation
    list_size: PositiveInt = 8  # documents of a query that are compared at once; 1: none

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return {**super().batching(), "list_size": self.list_size}


class _Query(NamedTuple):
    """A query: the rows of its documents, and the relevant ones among them."""

    rows: list[int]
    relevant: set[int]


def _queries(examples: Examples) -> list[_Query]:
    """Returns the queries that have a relevant document."""
    of_query: dict[str, list[int]] = {}
    for row, text in enumerate(examples.texts):
        of_query.setdefault(text, []).append(row)
    labels = examples.labels or ()
    queries = [
        _Query(rows, {i for i, row in enumerate(rows) if float(labels[row]) > 0.5})
        for rows in of_query.values()
    ]
    return [query for query in queries if query.relevant]


def _by_query(queries: Sequence[_Query], values: Any) -> np.ndarray:
    """Returns the values of each query's documents, -inf where it has fewer."""
    width = max(len(query.rows) for query in queries)
    return np.array(
        [
            [*(values[row] for row in query.rows), *[-np.inf] * (width - len(query.rows))]
            for query in queries
        ]
    )


def _ranked(
    examples: Examples, values: np.ndarray | list[float], suffix: str = ""
) -> dict[str, float]:
    """Returns ranking metrics over the documents of each query that has a relevant one."""
    queries = _queries(examples)
    if not queries:
        return {}
    scores = retrieval_scores(_by_query(queries, values), [query.relevant for query in queries])
    return {f"{name}{suffix}": scores[name] for name in ("mrr_at_10", "ndcg_at_10")}


class RerankingTrainer(Trainer[Reranker, Examples]):
    """Trains rerankers of documents."""

    options = RerankingOptions
    batches = RankingBatches
    takes_weights = True

    def columns(self, pipeline: Reranker) -> Sequence[Wanted]:
        return [Wanted("text", TEXT_A), Wanted("text_b", _DOCUMENT), Wanted("score", _SCORE)]

    def from_columns(self, pipeline: Reranker, columns: Columns, source: Source) -> Examples:
        queries, documents = (
            text_columns.checked(columns, name, source) for name in ("text", "text_b")
        )
        return Examples(queries, documents, numbers(columns["score"], source), str(source))

    def from_file(self, pipeline: Reranker, path: Path, columns: Mapping[str, str]) -> Examples:
        names = {{"score": "label"}.get(name, name): column for name, column in columns.items()}
        return text_columns.from_file(pipeline, path, names)

    def read(self, pipeline: Reranker, *args: Any, **options: Any) -> list[Examples]:
        return [with_mined(examples) for examples in super().read(pipeline, *args, **options)]

    def model(self, pipeline: Reranker, examples: Examples) -> keras.Model:
        return grouped_scorer(pipeline.training_model())

    def losses(
        self, pipeline: Reranker, examples: Examples, options: RerankingOptions
    ) -> Mapping[str, Any]:
        if options.distill:
            return {"loss": {"score": ElementwiseLoss(keras.losses.MeanSquaredError())}}
        for row, score in enumerate(examples.labels or ()):
            if not 0 <= float(score) <= 1:
                raise ValueError(
                    f"{examples.source}, row {row}: the score {score} is not from 0 to 1: use 1 "
                    "for documents that answer their query and 0 for others; for a teacher's "
                    "scores, distill=True"
                )
        if are_judgements(examples) and options.list_size > 1:
            return {"loss": {"score": RankingCrossentropy()}}
        crossentropy = keras.losses.BinaryCrossentropy(from_logits=True)
        return {"loss": {"score": ElementwiseLoss(crossentropy)}}

    def monitor(self, examples: Examples) -> str:
        if not are_judgements(examples):
            return "val_pearson"
        scores = _ranked(examples, np.zeros(len(examples)))
        return "val_ndcg_at_10" if scores else "val_accuracy"  # no query has a relevant document

    def answers(
        self,
        pipeline: Reranker,
        batches: RankingBatches,
        examples: Examples,
        outputs: Iterable[Any],
    ) -> Answers:
        return {"score": batches.by_pair(output["score"] for output in outputs)}

    def ask(self, pipeline: Any, examples: Examples) -> Answers:
        pairs = {"text": examples.texts, "documents": [[text] for text in examples.texts_b or ()]}
        scores = np.array([row["scores"][0] for row in pipeline.rows(pairs)], np.float64)
        if pipeline.activation == "sigmoid":  # as the model's
            scores = np.log(scores) - np.log1p(-scores)
        return {"score": scores}

    def report(self, pipeline: Any, answers: Answers, examples: Examples) -> Report:
        scores, texts, documents = answers["score"], examples.texts, examples.texts_b or ()
        queries = _queries(examples) if are_judgements(examples) else []
        if not queries:
            references = [float(score) for score in examples.labels or ()]
            pairs = text_columns.texts_of(examples)
            return regression_report(scores, references, texts=pairs, title=pipeline.task)
        return search_report(
            _by_query(queries, scores),
            [query.relevant for query in queries],
            [texts[query.rows[0]] for query in queries],
            [[documents[row] for row in query.rows] for query in queries],
            title=pipeline.task,
        )

    def answer_scores(
        self, pipeline: Reranker, answers: Answers, examples: Examples
    ) -> Mapping[str, float]:
        scores = answers["score"]
        labels = np.array([float(score) for score in examples.labels or ()])
        if not are_judgements(examples):
            return glue_scores(("pearson", "spearman"), scores, labels)
        accuracy = float(np.mean((scores > 0) == (labels > 0.5)))
        return {**_ranked(examples, scores), "accuracy": accuracy}

    def baseline(self, pipeline: Reranker, examples: Examples) -> Mapping[str, float]:
        """Returns the same metrics for BM25."""
        if not are_judgements(examples):
            return {}
        queries = list(dict.fromkeys(examples.texts))
        documents = list(dict.fromkeys(examples.texts_b or ()))
        similarities = bm25_similarities(queries, documents)
        row = {text: i for i, text in enumerate(queries)}
        column = {text: i for i, text in enumerate(documents)}
        pairs = zip(examples.texts, examples.texts_b or (), strict=True)
        scores = [similarities[row[query], column[document]] for query, document in pairs]
        return _ranked(examples, scores, "_of_bm25")

    def split(self, examples: Examples, share: float) -> tuple[Examples, Examples]:
        """Divides the examples so that each query is in only one part."""
        train, held_out = by_keys(examples.texts, share, f"{examples.source}: queries")
        return examples.select(train), examples.select(held_out)


TRAINER = RerankingTrainer()
