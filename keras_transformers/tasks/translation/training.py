"""Trains encoder-decoders: pairs of a text and its target, such as a translation or summary."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.translation import Pair, PairBatches, read_tsv
from keras_transformers.evaluation import Perplexity, TokenAccuracy, corpus_bleu
from keras_transformers.ranges import PositiveFloat, PositiveInt
from keras_transformers.runs import ValidationBleu
from keras_transformers.tasks import text_columns as texts
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, FitOptions, Job, check_column_names
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(FitOptions):
    """Options for translators already trained: a tenth of recipes/translation.py's rates."""

    learning_rate: PositiveFloat = 5e-5
    small_rate = 5e-4
    unused = frozenset({"batch_size"})
    batch_tokens: PositiveInt = 4096  # source and target, padding included; replaces batch_size

    def batching(self) -> dict[str, Any]:
        """Returns the options for training batches, which are sized in tokens, not pairs."""
        return self.pick("batch_tokens", "accumulate", "seed", "static_shapes")


def _examples(pipeline: Any, found: Columns, source: Source) -> list[Pair]:
    sides = (texts.checked(found, name, source) for name in ("text", "target"))
    return list(zip(*sides, strict=True))


def _from_file(pipeline: Any, path: Path, columns: Mapping[str, str]) -> list[Pair]:
    """Reads a tab-separated file without a header: a text and its translation per line."""
    check_column_names(columns, path, ())
    return list(read_tsv(path))


def _bleu(pipeline: Any, batches: PairBatches, pairs: list[Pair]) -> dict[str, float]:
    return ValidationBleu(pairs, pipeline)()


def _copies(pipeline: Any, pairs: list[Pair]) -> dict[str, float]:
    sources, targets = zip(*pairs, strict=True)
    return {"bleu_of_copies": corpus_bleu(sources, targets).score}


def _split(found: list[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    train, dev = at_random(len(found), share, "data: pairs")
    return [found[i] for i in train], [found[i] for i in dev]


JOB = Job(
    task="translation",
    columns=lambda pipeline: [
        Wanted("text", ("source", "document", "article", "src")),
        Wanted("target", ("translation", "summary", "highlights", "tgt")),
    ],
    from_columns=_examples,
    from_file=_from_file,
    batches=PairBatches,
    # The smoothing of "Attention Is All You Need", section 5.4.
    losses=lambda given: {"loss": {"logits": TokenCrossentropy(label_smoothing=0.1)}},
    metrics=lambda pipeline: {"logits": [Perplexity(), TokenAccuracy("accuracy")]},
    monitor=lambda examples: "val_bleu",
    scores=_bleu,
    baseline=_copies,
    split=_split,
    options=_Options,
)
