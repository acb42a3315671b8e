"""Trains late interaction: queries with documents that answer them, and some that do not."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.tables.in_memory import TEXT_A, Wanted
from keras_transformers.data.text import TextPairs, load_text_pairs, split_text_pairs
from keras_transformers.evaluation import retrieval_scores
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.search import search_report
from keras_transformers.ranges import PositiveFloat
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.embedding.searching import bm25_scores, relevant
from keras_transformers.tasks.late_interaction.head import in_batch_scorer
from keras_transformers.tasks.late_interaction.pipeline import LateInteraction
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names
from keras_transformers.tokenizers.tensors import texts_of
from keras_transformers.training import CandidateContrast, CandidateDistillation

__all__ = ["LateInteractionOptions"]

_logger = logging.getLogger(__name__)

_NAMES = ("text", "text_b", "negative")
_DOCUMENT = ("positive", "document", "passage", "answer", "context", "text2", "sentence2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteractionOptions(Training):
    """Options with the rate of sentence-transformers' encoders, 2e-5, for a new projection too."""

    temperature: PositiveFloat = 1.0  # divides the sums of cosines, as in PyLate

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5


@dataclasses.dataclass(frozen=True)
class Rankings(TextPairs):
    """Queries, each with a document that answers it.

    Attributes:
        teacher: a teacher's scores of each query's document and its negatives; () if there are
            none.
    """

    teacher: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        group = 1 + (len(self.negatives[0]) if self.negatives else 0)
        wrong = {
            row: f"{len(scores)} teacher's scores for {group} documents"
            for row, scores in enumerate(self.teacher)
            if len(scores) != group or group < 2
        }
        check_rows(self.source, wrong)


class LateInteractionBatches(LengthBatches):
    """Batches of (inputs, {"scores": targets}) for `heads.in_batch_scorer`.

    The targets are int32 (batch, 1 + group), equal for equal texts, for
    `training.CandidateContrast`; or a teacher's scores, float32 (batch, group), for
    `training.CandidateDistillation`. The constructor tokenizes the texts.

    Args:
        rankings: the examples.
        pipeline: a `pipelines.LateInteraction`, which tokenizes and packs the texts.
        batch_size: queries per batch.
        accumulate: batches per update; texts in different batches are not compared.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: None; see `LengthBatches`.

    Raises:
        ValueError: there are no examples, the batch size is below 1, or there are static shapes.
    """

    def __init__(
        self,
        rankings: Rankings,
        pipeline: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
    ) -> None:
        if not len(rankings):
            raise ValueError(f"{rankings.source}: no queries")
        if static_shapes is not None:
            raise ValueError(
                f"static_shapes={static_shapes}: rows that complete a batch would be compared with "
                "the others: leave it out"
            )
        self.rankings, self.pipeline = rankings, pipeline
        columns = [rankings.texts, rankings.partners, *zip(*rankings.negatives, strict=True)]
        self._group = len(columns) - 1
        self._segments = [
            pipeline.segments(texts_of(column, f"{rankings.source}: text"), of_queries=not place)
            for place, column in enumerate(columns)
        ]
        special = pipeline.tokenizer.num_special_tokens(1)
        full = np.stack([part.row_lengths().numpy() + special for part in self._segments])
        most = np.array([pipeline.query_length, *[pipeline.document_length] * self._group])
        lengths = np.minimum(full, most[:, None])  # (1 + group, rows)
        super().__init__(
            lengths[1:].max(axis=0), batch_size=batch_size * accumulate, shuffle=shuffle, seed=seed
        )
        self.mean_lengths = float(lengths.sum(axis=0).mean())
        self._row_size = batch_size
        ids = {text: number for number, text in enumerate(dict.fromkeys(itertools.chain(*columns)))}
        self._targets = tf.constant(
            np.array(rankings.teacher, np.float32)
            if rankings.teacher
            else np.array([[ids[text] for text in column] for column in columns], np.int32).T
        )
        num_trimmed = int(np.sum(full > lengths))
        _logger.log(
            logging.WARNING if num_trimmed else logging.INFO,
            "%s: %d queries with %d documents each, %d texts truncated",
            *(rankings.source, len(rankings), self._group, num_trimmed),
        )

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the examples at `indices`, int32 (batch,); runs in graphs."""
        queries, *others = (tf.gather(part, indices) for part in self._segments)
        query_inputs, _ = self.pipeline.pack_queries(queries)
        rows, scored = self.pipeline.pack_documents(tf.concat(others, axis=0))
        groups = tf.stack([self._group, tf.shape(indices)[0], -1])
        inputs = {f"query_{name}": value for name, value in query_inputs.items()}
        for name, value in {**rows, "scored_mask": scored}.items():
            inputs[name] = tf.transpose(tf.reshape(value, groups), [1, 0, 2])
            inputs[name].set_shape([None, self._group, None])
        return inputs, {"scores": tf.gather(self._targets, indices)}

    def of(self, rankings: Rankings) -> Self:
        """Returns batches of other examples, made the same way but in order."""
        return type(self)(rankings, self.pipeline, batch_size=self._row_size, shuffle=False)

    def samples(self, count: int) -> Samples:
        """Returns the first queries with their documents."""
        rankings = self.rankings
        documents = [[document] for document in rankings.partners[:count]]
        texts = {"text": rankings.texts[:count], "documents": documents}
        return Samples(self.pipeline, texts, rankings.partners[:count])


class LateInteractionTrainer(Trainer[LateInteraction, Rankings]):
    """Trains late interaction on pairs, on triples, or on a teacher's scores."""

    options = LateInteractionOptions
    batches = LateInteractionBatches

    def columns(self, pipeline: LateInteraction) -> Sequence[Wanted]:
        return [
            Wanted("text", TEXT_A),
            Wanted("text_b", _DOCUMENT),
            Wanted("negative", ("negatives",), required=False),
            Wanted("scores", required=False),
        ]

    def from_columns(self, pipeline: LateInteraction, columns: Columns, source: Source) -> Rankings:
        texts, texts_b = (
            text_columns.checked(columns, name, source) for name in ("text", "text_b")
        )
        negatives = [x if isinstance(x, list) else [x] for x in columns.get("negative") or ()]
        scores = columns.get("scores") or ()
        reasons = {
            row: f"{value!r:.80}, expected a text that does not answer the query, or a list of them"
            for row, value in enumerate(negatives)
            if not all(isinstance(text, str) for text in value)
        }
        reasons |= {
            row: f"{value!r:.80}, expected a list with a teacher's score for each document"
            for row, value in enumerate(scores)
            if not isinstance(value, list) or not all(map(_is_number, value))
        }
        check_rows(str(source), reasons)
        return Rankings(texts, texts_b, negatives, source=str(source), teacher=scores)

    def from_file(
        self, pipeline: LateInteraction, path: Path, columns: Mapping[str, str]
    ) -> Rankings:
        check_column_names(columns, path, _NAMES)
        pairs = load_text_pairs(
            path,
            text_column=columns.get("text", 0),
            text_b_column=columns.get("text_b", 1),
            negative_columns=[columns["negative"]] if "negative" in columns else (),
        )
        return Rankings(**{name: getattr(pairs, name) for name in _FIELDS})

    def model(self, pipeline: LateInteraction, examples: Rankings) -> keras.Model:
        return in_batch_scorer(pipeline.training_model())

    def losses(
        self, pipeline: LateInteraction, examples: Rankings, options: LateInteractionOptions
    ) -> Mapping[str, Any]:
        kind = CandidateDistillation if examples.teacher else CandidateContrast
        return {"loss": {"scores": kind(temperature=options.temperature)}}

    def monitor(self, examples: Rankings) -> str:
        return "val_ndcg_at_10"

    def answers(
        self, pipeline: LateInteraction, batches: Any, examples: Rankings, outputs: Iterable[Any]
    ) -> Answers:
        return {"scores": _all_scores(examples, pipeline.query_vectors, pipeline.document_vectors)}

    def answer_scores(
        self, pipeline: LateInteraction, answers: Answers, examples: Rankings
    ) -> Mapping[str, float]:
        return retrieval_scores(answers["scores"], relevant(examples))

    def ask(self, pipeline: Any, examples: Rankings) -> Answers:
        def of(signature: str) -> Callable[[list[str]], list[np.ndarray]]:
            return lambda texts: [
                np.array(row["vectors"][: row["num_vectors"]], np.float32)
                for row in pipeline(texts, prompt_name=signature)
            ]

        return {"scores": _all_scores(examples, of("query"), of("document"))}

    def report(self, pipeline: Any, answers: Answers, examples: Rankings) -> Report:
        queries = list(examples.queries())
        documents = [examples.documents()] * len(queries)  # the same list
        title = pipeline.task
        return search_report(answers["scores"], relevant(examples), queries, documents, title=title)

    def baseline(self, pipeline: LateInteraction, examples: Rankings) -> Mapping[str, float]:
        return bm25_scores(examples)

    def split(self, examples: Rankings, share: float) -> tuple[Rankings, Rankings]:
        train, held_out = split_text_pairs(examples, share)
        assert isinstance(train, Rankings)
        assert isinstance(held_out, Rankings)
        return train, held_out


_FIELDS = [field.name for field in dataclasses.fields(TextPairs)]


def max_sim(query: np.ndarray, documents: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the score of each document for a query: float32 (documents,).

    Args:
        query: (query tokens, width).
        documents: each (tokens, width); one without tokens scores 0.
    """
    lengths = np.array([len(document) for document in documents])
    scores = np.zeros(len(documents), np.float32)
    if lengths.any():
        tokens = np.concatenate([document for document in documents if len(document)])
        ends = np.cumsum(lengths[lengths > 0])
        starts = ends - lengths[lengths > 0]
        best = np.maximum.reduceat(tokens @ query.T, starts, axis=0)  # (documents, query tokens)
        scores[lengths > 0] = best.sum(axis=1)
    return scores


def _all_scores(
    examples: Rankings,
    of_queries: Callable[[list[str]], list[np.ndarray]],
    of_documents: Callable[[list[str]], list[np.ndarray]],
) -> np.ndarray:
    """Returns each query's scores of all documents: float32 (queries, documents)."""
    documents = of_documents(examples.documents())
    return np.stack([max_sim(query, documents) for query in of_queries(list(examples.queries()))])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TRAINER = LateInteractionTrainer()
