"""Trains sparse embedders: queries with documents, and possibly a teacher's scores."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text import TextPairBatches, TextPairs
from keras_transformers.ranges import NonNegativeFloat, PositiveFloat
from keras_transformers.runs import Training
from keras_transformers.tasks.search_training import SearchTrainer
from keras_transformers.tasks.sparse_embedding.head import grouped_sparse_embedder
from keras_transformers.tasks.sparse_embedding.pipeline import SparseEmbedder
from keras_transformers.tasks.sparse_embedding.searching import search_scores, searched
from keras_transformers.tasks.training import Answers
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


class _Batches(TextPairBatches):
    """Batches of (inputs, {"sparse_embedding": targets}) for `grouped_sparse_embedder`.

    The targets are those of `TextPairBatches`.
    """

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the pairs at `indices`, int32 (batch,); runs in graphs."""
        inputs, targets = super().batch(indices)
        return inputs, {"sparse_embedding": targets["embedding"]}

    @staticmethod
    def _prompts(pipeline: Any, *, scored: bool) -> list[str | None]:
        return [pipeline.prompt_of("query"), pipeline.prompt_of("document")]


class SparseEmbeddingTrainer(SearchTrainer[SparseEmbedder]):
    """Trains sparse embedders of texts."""

    options = SparseEmbeddingOptions
    batches = _Batches

    def model(self, pipeline: SparseEmbedder, examples: TextPairs) -> keras.Model:
        return grouped_sparse_embedder(pipeline.training_model(), query_table=pipeline.query_table)

    def losses(
        self, pipeline: SparseEmbedder, examples: TextPairs, options: SparseEmbeddingOptions
    ) -> Mapping[str, Any]:
        loss: keras.losses.Loss = InBatchContrast(
            temperature=options.temperature, symmetric=options.symmetric, similarity="dot"
        )
        if examples.teacher:
            loss = MarginDistillation()
        sparse = WithFlops(
            loss,
            query_weight=options.query_regularizer,
            document_weight=options.document_regularizer,
        )
        return {"loss": {"sparse_embedding": sparse}}

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


TRAINER = SparseEmbeddingTrainer()
