"""Trains late interaction: queries with documents that answer them, and some that do not."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import Samples
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text import TextPairBatches, TextPairs
from keras_transformers.ranges import PositiveFloat
from keras_transformers.runs import Training
from keras_transformers.tasks.late_interaction.head import in_batch_scorer
from keras_transformers.tasks.late_interaction.pipeline import LateInteraction
from keras_transformers.tasks.search_training import SearchTrainer
from keras_transformers.tasks.training import Answers
from keras_transformers.tokenizers.tensors import texts_of
from keras_transformers.training import CandidateContrast, CandidateDistillation

__all__ = ["LateInteractionOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteractionOptions(Training):
    """Options with the rate of sentence-transformers' encoders, 2e-5, for a new projection too."""

    temperature: PositiveFloat = 1.0  # divides the sums of cosines, as in PyLate

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5


class LateInteractionBatches(TextPairBatches):
    """Batches of (inputs, {"scores": targets}) for `heads.in_batch_scorer`.

    The inputs are those of the query, (batch, length), and of its documents, (batch, group,
    length): its partner and its negatives. The targets are int32 (batch, 1 + group), equal for
    equal texts, for `training.CandidateContrast`; or a teacher's scores, float32 (batch, group),
    for `training.CandidateDistillation`. See `TextPairBatches`; `pipeline` is a
    `pipelines.LateInteraction`.
    """

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the pairs at `indices`, int32 (batch,); runs in graphs."""
        queries, *others = (tf.gather(part, indices) for part in self._segments)
        query_inputs, _ = self.pipeline.pack_queries(queries)
        rows, scored = self.pipeline.pack_documents(tf.concat(others, axis=0))
        groups = tf.stack([len(others), tf.shape(indices)[0], -1])
        inputs = {f"query_{name}": value for name, value in query_inputs.items()}
        for name, value in {**rows, "scored_mask": scored}.items():
            inputs[name] = tf.transpose(tf.reshape(value, groups), [1, 0, 2])
            inputs[name].set_shape([None, len(others), None])
        return inputs, {"scores": tf.gather(self._targets, indices)}

    def samples(self, count: int) -> Samples:
        """Returns the first queries with their documents."""
        partners = self.pairs.partners[:count]
        texts = {"text": self.pairs.texts[:count], "documents": [[text] for text in partners]}
        return Samples(self.pipeline, texts, partners)

    def _tokenized(
        self, columns: Sequence[Sequence[str]]
    ) -> tuple[list[tf.RaggedTensor], np.ndarray, np.ndarray]:
        pipeline, source = self.pipeline, f"{self.pairs.source}: text"
        segments = [
            pipeline.segments(texts_of(column, source), of_queries=not place)
            for place, column in enumerate(columns)
        ]
        special = pipeline.tokenizer.num_special_tokens(1)
        full = np.stack([part.row_lengths().numpy() + special for part in segments])
        most = [pipeline.query_length, *[pipeline.document_length] * (len(columns) - 1)]
        return segments, full, np.array(most)[:, None]

    def _mean_lengths(self, counts: np.ndarray, lengths: np.ndarray) -> float:
        return float(lengths.sum(axis=0).mean())  # of a query and its documents


class LateInteractionTrainer(SearchTrainer[LateInteraction]):
    """Trains late interaction on pairs, on triples, or on a teacher's scores."""

    options = LateInteractionOptions
    batches = LateInteractionBatches

    def model(self, pipeline: LateInteraction, examples: TextPairs) -> keras.Model:
        return in_batch_scorer(pipeline.training_model())

    def losses(
        self, pipeline: LateInteraction, examples: TextPairs, options: LateInteractionOptions
    ) -> Mapping[str, Any]:
        kind = CandidateDistillation if examples.teacher else CandidateContrast
        return {"loss": {"scores": kind(temperature=options.temperature)}}

    def answers(
        self, pipeline: LateInteraction, batches: Any, examples: TextPairs, outputs: Iterable[Any]
    ) -> Answers:
        of_queries, of_documents = pipeline.query_vectors, pipeline.document_vectors
        return {"similarities": _all_scores(examples, of_queries, of_documents)}

    def ask(self, pipeline: Any, examples: TextPairs) -> Answers:
        def of(signature: str) -> Callable[[list[str]], list[np.ndarray]]:
            return lambda texts: [
                np.array(row["vectors"][: row["num_vectors"]], np.float32)
                for row in pipeline(texts, prompt_name=signature)
            ]

        return {"similarities": _all_scores(examples, of("query"), of("document"))}


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
    examples: TextPairs,
    of_queries: Callable[[list[str]], list[np.ndarray]],
    of_documents: Callable[[list[str]], list[np.ndarray]],
) -> np.ndarray:
    """Returns each query's scores of all documents: float32 (queries, documents)."""
    documents = of_documents(examples.documents())
    return np.stack([max_sim(query, documents) for query in of_queries(list(examples.queries()))])


TRAINER = LateInteractionTrainer()
