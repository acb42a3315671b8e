"""Trains embedders: pairs of matching texts, or pairs with a similarity score."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.tables.in_memory import TEXT_A, TEXT_B, Wanted
from keras_transformers.data.text import (
    TextPairBatches,
    TextPairs,
    load_text_pairs,
    split_text_pairs,
)
from keras_transformers.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from keras_transformers.tasks import text_columns as texts
from keras_transformers.tasks.embedding.head import grouped_embedder
from keras_transformers.tasks.embedding.searching import bm25_scores, main_figure, similarity_scores
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, FitOptions, Given, Job, check_column_names
from keras_transformers.training import InBatchContrast, PairSimilarity, cache_gradients

_NAMES = ("text", "text_b", "negative", "score")
_SCORE = ("similarity", "relatedness_score", "label")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(FitOptions):
    """Options as in Sentence-BERT: 2e-5, batches of 16 (Reimers & Gurevych 2019, section 3.1)."""

    learning_rate: PositiveFloat = 2e-5
    temperature: PositiveFloat = 0.05  # a scale of 20 in sentence-transformers
    symmetric: bool = True  # partners also search for their texts
    dims: tuple[PositiveInt, ...] = ()  # numbers of leading dimensions to train for use alone
    chunk: NonNegativeInt = 0  # examples per pass, for batches that exceed memory; 0: all

    def check(self) -> None:
        """Checks the options before reading any data."""
        super().check()
        if self.chunk and (self.accumulate > 1 or self.strategy != "default"):
            raise ValueError(
                f"chunk={self.chunk}: leave out accumulate, which compares no more texts, and the "
                "strategy"
            )


def _examples(pipeline: Any, found: Columns, source: Source) -> TextPairs:
    columns = [texts.checked(found, name, source) for name in ("text", "text_b")]
    third = found.get("negative") or found.get("score")
    if third is None:
        return TextPairs(columns[0], columns[1], source=str(source))
    if all(isinstance(value, int | float) for value in third):
        return TextPairs(columns[0], columns[1], scores=list(map(float, third)), source=str(source))
    lists = [value if isinstance(value, list) else [value] for value in third]
    for row, value in enumerate(lists):
        if not all(isinstance(text, str) for text in value):
            raise ValueError(
                f"{source.row(row)}: {third[row]!r:.80}, expected a text that does not belong to "
                "the first, a list of them, or a score"
            )
    return TextPairs(columns[0], columns[1], lists, source=str(source))


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> TextPairs:
    check_column_names(columns, path, _NAMES)
    return load_text_pairs(
        path,
        text_column=columns.get("text", 0),
        text_b_column=columns.get("text_b", 1),
        negative_columns=[columns["negative"]] if "negative" in columns else (),
        score_column=columns.get("score"),
    )


def _wanted(pipeline: Any) -> list[Wanted]:
    return [
        Wanted("text", TEXT_A),
        Wanted("text_b", ("positive", "answer", "document", "context", *TEXT_B)),
        Wanted("negative", ("negatives",), required=False),
        Wanted("score", _SCORE, required=False),
    ]


def _losses(given: Given) -> dict[str, Any]:
    options: Any = given.options
    width = given.pipeline.model.output["embedding"].shape[-1]
    if wrong := [size for size in options.dims if size > width]:
        raise ValueError(
            f"dims={options.dims}: the vectors have {width} dimensions, not {wrong[0]}"
        )
    if given.examples.scores is not None:
        return {"loss": {"embedding": PairSimilarity(dims=options.dims)}}
    loss = InBatchContrast(
        temperature=options.temperature, symmetric=options.symmetric, dims=options.dims
    )
    return {"loss": {"embedding": loss}}


def _cached(model: keras.Model, options: Any) -> None:
    if options.chunk:
        cache_gradients(model, chunk=options.chunk)


def _baseline(pipeline: Any, pairs: TextPairs) -> dict[str, float]:
    return {} if pairs.scores is not None else bm25_scores(pairs)


JOB = Job(
    task="embedding",
    columns=_wanted,
    from_columns=_examples,
    from_file=_from_file,
    batches=TextPairBatches,
    model=lambda pipeline: grouped_embedder(pipeline.model),
    losses=_losses,
    steps=_cached,
    monitor=lambda pairs: f"val_{main_figure(pairs)}",
    scores=lambda pipeline, batches, pairs: similarity_scores(pipeline, pairs),
    baseline=_baseline,
    split=split_text_pairs,
    options=_Options,
)
