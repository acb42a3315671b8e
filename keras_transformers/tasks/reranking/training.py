"""Trains rerankers: queries with documents, labelled or scored by how well they answer."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from keras_transformers.data.batching import Samples
from keras_transformers.data.splits import by_keys
from keras_transformers.data.tables.in_memory import TEXT_A, Wanted
from keras_transformers.data.text import Examples, ScoredTextBatches
from keras_transformers.evaluation import bm25_similarities, glue_scores, retrieval_scores
from keras_transformers.runs import Training, outputs_of
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.regression.training import numbers, score_loss
from keras_transformers.tasks.reranking.pipeline import Reranker
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Trainer

__all__ = ["RerankingOptions"]

_DOCUMENT = ("document", "passage", "answer", "context", "text2", "sentence2")
_SCORE = ("label", "labels", "relevance")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingOptions(Training):
    """Options with the rate of sentence-transformers' CrossEncoders, 2e-5."""

    distill: bool = False  # learn a teacher's scores, taken before its activation

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5


class _Batches(ScoredTextBatches):
    """Batches of pairs of a query and a document."""

    def samples(self, count: int) -> Samples:
        """Returns the first pairs with their scores."""
        examples = self.examples
        rows = [[document] for document in (examples.texts_b or ())[:count]]
        texts = {"text": examples.texts[:count], "documents": rows}
        return Samples(self.pipeline, texts, (examples.labels or ())[:count])


def _are_judgements(examples: Examples) -> bool:
    """Returns whether all scores are 0 or 1, so not a teacher's."""
    return {float(score) for score in examples.labels or ()} <= {0.0, 1.0}


def _ranked(
    examples: Examples, values: np.ndarray | list[float], suffix: str = ""
) -> dict[str, float]:
    """Returns ranking metrics over the documents of each query that has a relevant one."""
    of_query: dict[str, list[int]] = {}
    for row, text in enumerate(examples.texts):
        of_query.setdefault(text, []).append(row)
    width = max(map(len, of_query.values()))
    rows, relevant = [], []
    for places in of_query.values():
        right = {i for i, row in enumerate(places) if float((examples.labels or ())[row]) > 0.5}
        if right:
            rows.append([*(values[row] for row in places), *[-np.inf] * (width - len(places))])
            relevant.append(right)
    if not rows:
        return {}
    scores = retrieval_scores(np.array(rows), relevant)
    return {f"{name}{suffix}": scores[name] for name in ("mrr_at_10", "ndcg_at_10")}


class RerankingTrainer(Trainer[Reranker, Examples]):
    """Trains rerankers of documents."""

    options = RerankingOptions
    batches = _Batches
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

    def losses(
        self, pipeline: Reranker, examples: Examples, options: RerankingOptions
    ) -> Mapping[str, Any]:
        if options.distill:
            return score_loss(keras.losses.MeanSquaredError(), examples)
        for row, score in enumerate(examples.labels or ()):
            if not 0 <= float(score) <= 1:
                raise ValueError(
                    f"{examples.source}, row {row}: the score {score} is not from 0 to 1: use 1 "
                    "for documents that answer their query and 0 for others; for a teacher's "
                    "scores, distill=True"
                )
        return score_loss(keras.losses.BinaryCrossentropy(from_logits=True), examples)

    def monitor(self, examples: Examples) -> str:
        if not _are_judgements(examples):
            return "val_pearson"
        scores = _ranked(examples, np.zeros(len(examples)))
        return "val_ndcg_at_10" if scores else "val_accuracy"  # no query has a relevant document

    def scores(
        self, pipeline: Reranker, batches: ScoredTextBatches, examples: Examples
    ) -> Mapping[str, float]:
        outputs = outputs_of(pipeline.model, batches)
        scores = np.concatenate([output["score"] for output in outputs])
        labels = np.array([float(score) for score in examples.labels or ()])
        if not _are_judgements(examples):
            return glue_scores(("pearson", "spearman"), scores, labels)
        accuracy = float(np.mean((scores > 0) == (labels > 0.5)))
        return {**_ranked(examples, scores), "accuracy": accuracy}

    def baseline(self, pipeline: Reranker, examples: Examples) -> Mapping[str, float]:
        """Returns the same metrics for BM25."""
        if not _are_judgements(examples):
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
