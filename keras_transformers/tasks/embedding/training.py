"""Trains embedders: pairs of matching texts, or pairs with a similarity score."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.tables.in_memory import TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import (
    TextPairBatches,
    TextPairs,
    load_text_pairs,
    split_text_pairs,
)
from keras_transformers.evaluation.reports.regression import regression_report
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.search import search_report
from keras_transformers.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.embedding.head import grouped_embedder
from keras_transformers.tasks.embedding.pipeline import Embedder
from keras_transformers.tasks.embedding.searching import (
    bm25_scores,
    main_figure,
    relevant,
    scores_of,
    similarities,
)
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names
from keras_transformers.training import InBatchContrast, PairSimilarity, cache_gradients

__all__ = ["EmbeddingOptions"]

_NAMES = ("text", "text_b", "negative", "score")
_SCORE = ("similarity", "relatedness_score", "label")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(Training):
    """Options as in Sentence-BERT: 2e-5, batches of 16 (Reimers & Gurevych 2019, section 3.1)."""

    temperature: PositiveFloat = 0.05  # a scale of 20 in sentence-transformers
    symmetric: bool = True  # partners also search for their texts
    dims: tuple[PositiveInt, ...] = ()  # numbers of leading dimensions to train for use alone
    # pairs per pass, for batches that do not fit into memory (GradCache); 0: all at once
    chunk: NonNegativeInt = 0

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5

    def check(self) -> None:
        """Checks the options before reading any data."""
        super().check()
        if self.chunk and (self.accumulate > 1 or self.strategy != "default"):
            raise ValueError(
                f"chunk {self.chunk}: leave out accumulate, which compares no more texts, and the "
                "strategy"
            )


class EmbeddingTrainer(Trainer[Embedder, TextPairs]):
    """Trains embedders of texts."""

    options = EmbeddingOptions
    batches = TextPairBatches

    def columns(self, pipeline: Embedder) -> Sequence[Wanted]:
        return [
            Wanted("text", TEXT_A),
            Wanted("text_b", ("positive", "answer", "document", "context", *TEXT_B)),
            Wanted("negative", ("negatives",), required=False),
            Wanted("score", _SCORE, required=False),
        ]

    def from_columns(self, pipeline: Embedder, columns: Columns, source: Source) -> TextPairs:
        texts, texts_b = (
            text_columns.checked(columns, name, source) for name in ("text", "text_b")
        )
        third = columns.get("negative") or columns.get("score")
        if third is None:
            return TextPairs(texts, texts_b, source=str(source))
        if all(isinstance(value, int | float) for value in third):
            return TextPairs(texts, texts_b, scores=list(map(float, third)), source=str(source))
        lists = [value if isinstance(value, list) else [value] for value in third]
        reasons = {
            row: f"{third[row]!r:.80}, expected a text that does not belong to the first, a list "
            "of them, or a score"
            for row, value in enumerate(lists)
            if not all(isinstance(text, str) for text in value)
        }
        check_rows(str(source), reasons)
        return TextPairs(texts, texts_b, lists, source=str(source))

    def from_file(self, pipeline: Embedder, path: Path, columns: Mapping[str, str]) -> TextPairs:
        check_column_names(columns, path, _NAMES)
        return load_text_pairs(
            path,
            text_column=columns.get("text", 0),
            text_b_column=columns.get("text_b", 1),
            negative_columns=[columns["negative"]] if "negative" in columns else (),
            score_column=columns.get("score"),
        )

    def model(self, pipeline: Embedder, examples: TextPairs) -> keras.Model:
        return grouped_embedder(pipeline.training_model())

    def losses(
        self, pipeline: Embedder, examples: TextPairs, options: EmbeddingOptions
    ) -> Mapping[str, Any]:
        width = pipeline.model.output["embedding"].shape[-1]
        if wrong := [size for size in options.dims if size > width]:
            raise ValueError(
                f"dims={options.dims}: the vectors have {width} dimensions, not {wrong[0]}"
            )
        if examples.scores is not None:
            return {"loss": {"embedding": PairSimilarity(dims=options.dims)}}
        loss = InBatchContrast(
            temperature=options.temperature, symmetric=options.symmetric, dims=options.dims
        )
        return {"loss": {"embedding": loss}}

    def adapt_step(self, model: keras.Model, options: EmbeddingOptions) -> None:
        if options.chunk:
            cache_gradients(model, chunk=options.chunk)

    def monitor(self, examples: TextPairs) -> str:
        return f"val_{main_figure(examples)}"

    def answers(
        self,
        pipeline: Embedder,
        batches: TextPairBatches,
        examples: TextPairs,
        outputs: Iterable[Any],
    ) -> Answers:
        return {"similarities": similarities(pipeline, examples)}

    def answer_scores(
        self, pipeline: Embedder, answers: Answers, examples: TextPairs
    ) -> Mapping[str, float]:
        return scores_of(answers["similarities"], examples)

    def ask(self, pipeline: Any, examples: TextPairs) -> Answers:
        return {"similarities": similarities(pipeline, examples)}

    def report(self, pipeline: Any, answers: Answers, examples: TextPairs) -> Report:
        scores, texts = answers["similarities"], examples.texts
        if examples.scores is not None:
            pairs = [f"{a} | {b}" for a, b in zip(texts, examples.partners, strict=True)]
            return regression_report(scores, examples.scores, texts=pairs, title=pipeline.task)
        queries = list(examples.queries())
        documents = [examples.documents()] * len(queries)  # the same list
        return search_report(scores, relevant(examples), queries, documents, title=pipeline.task)

    def baseline(self, pipeline: Embedder, examples: TextPairs) -> Mapping[str, float]:
        return {} if examples.scores is not None else bm25_scores(examples)

    def split(self, examples: TextPairs, share: float) -> tuple[TextPairs, TextPairs]:
        return split_text_pairs(examples, share)


TRAINER = EmbeddingTrainer()
