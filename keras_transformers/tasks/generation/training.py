"""Trains text generators: texts, of which a causal language model learns each next token."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.data.language_models import RowBatches, TokenStream
from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import TEXT, Wanted
from keras_transformers.evaluation import LogProbabilityOfTokens, Perplexity
from keras_transformers.files import read_lines
from keras_transformers.ranges import PositiveFloat, PositiveInt
from keras_transformers.tasks import text_columns as texts
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, FitOptions, Job, check_column_names
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(FitOptions):
    """Options with GPT's rate (Radford et al. 2018, section 4.1); recipes/language_model.py's."""

    batch_size: PositiveInt = 16
    learning_rate: PositiveFloat = 6.25e-5
    small_rate = 2e-3


def _examples(pipeline: Any, found: Columns, source: Source) -> list[str]:
    return texts.checked(found, "text", source)


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> list[str]:
    """Reads a text file as one document."""
    check_column_names(columns, path, ())
    return ["\n".join(read_lines(path))]


def _batches(stream: TokenStream, pipeline: Any, **options: Any) -> RowBatches:
    # Rows at every cut of a short text: two of them are enough to learn from.
    length = max(1, min(pipeline.max_sequence_length, stream.num_targets // 2))
    return RowBatches(stream, length=length, **options)


def _split(found: list[str], share: float) -> tuple[list[str], list[str]]:
    train, dev = at_random(len(found), share, "data: texts")
    return [found[i] for i in sorted(train)], [found[i] for i in sorted(dev)]


def _unigrams(pipeline: Any, found: list[str]) -> dict[str, float]:
    """Returns the perplexity of a unigram model fitted to this same text."""
    counts = np.bincount(TokenStream.of(found, pipeline.tokenizer).token_ids[1:])
    shares = counts[counts > 0] / counts.sum()
    return {"perplexity_of_unigrams": float(np.exp(-np.sum(shares * np.log(shares))))}


JOB = Job(
    task="generation",
    columns=lambda pipeline: [Wanted("text", TEXT)],
    from_columns=_examples,
    from_file=_from_file,
    encoded=lambda pipeline, found: TokenStream.of(found, pipeline.tokenizer),
    batches=_batches,
    losses=lambda given: {"loss": {"logits": TokenCrossentropy()}},
    metrics=lambda pipeline: {"logits": [Perplexity()]},
    callbacks=lambda: [LogProbabilityOfTokens()],
    monitor=lambda examples: "val_log_probability",
    baseline=_unigrams,
    split=_split,
    options=_Options,
)
