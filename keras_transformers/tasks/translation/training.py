"""Trains encoder-decoders: pairs of a text and its target, such as a translation or summary."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from keras_transformers.data.faults import Content
from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.translation import Pair, PairBatches, read_tsv
from keras_transformers.data.translation.parallel_text import contents_of_pairs
from keras_transformers.evaluation import Perplexity, TokenAccuracy, corpus_bleu
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.reports.translation import (
    TRANSLATION_FIGURES,
    translation_report,
)
from keras_transformers.ranges import PositiveInt, Rate
from keras_transformers.runs import EncoderDecoderTraining, Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names
from keras_transformers.tasks.translation.pipeline import Translator
from keras_transformers.training import TokenCrossentropy

__all__ = ["TranslationOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationOptions(Training):
    """How trained translators are trained further: a tenth of recipes/translation.py's rates.

    The recipe trains new models, with `runs.EncoderDecoderTraining`.
    """

    batch_tokens: PositiveInt = 4096  # source and target, padding included; replaces batch_size
    label_smoothing: Rate = EncoderDecoderTraining.label_smoothing

    medium_rate: ClassVar[float] = 5e-5
    small_rate: ClassVar[float] = 5e-4

    def batching(self) -> dict[str, Any]:
        """Returns the options for training batches, which are sized in tokens, not pairs."""
        return self.pick("batch_tokens", "accumulate", "seed", "static_shapes")


class TranslationTrainer(Trainer[Translator, list[Pair]]):
    """Trains encoder-decoders."""

    options = TranslationOptions
    batches = PairBatches
    monitored = "val_bleu"
    unused = frozenset({"batch_size"})
    report_figures = TRANSLATION_FIGURES

    def columns(self, pipeline: Translator) -> Sequence[Wanted]:
        return [
            Wanted("text", ("source", "document", "article", "src")),
            Wanted("target", ("translation", "summary", "highlights", "tgt")),
        ]

    def from_columns(self, pipeline: Translator, columns: Columns, source: Source) -> list[Pair]:
        sides = (text_columns.checked(columns, name, source) for name in ("text", "target"))
        return list(zip(*sides, strict=True))

    def from_file(self, pipeline: Translator, path: Path, columns: Mapping[str, str]) -> list[Pair]:
        """Reads a tab-separated file without a header: a text and its translation per line."""
        check_column_names(columns, path, ())
        return list(read_tsv(path))

    def losses(
        self, pipeline: Translator, examples: list[Pair], options: TranslationOptions
    ) -> Mapping[str, Any]:
        return {"loss": {"logits": TokenCrossentropy(label_smoothing=options.label_smoothing)}}

    def metrics(self, pipeline: Translator) -> Mapping[str, Any]:
        return {"logits": [Perplexity(), TokenAccuracy("accuracy")]}

    def answers(
        self,
        pipeline: Translator,
        batches: PairBatches,
        examples: list[Pair],
        outputs: Iterable[Any],
    ) -> Answers:
        return {"translation": pipeline.translate_all([source for source, _ in examples])}

    def answer_scores(
        self, pipeline: Translator, answers: Answers, examples: list[Pair]
    ) -> Mapping[str, float]:
        references = [target for _, target in examples]
        return {"bleu": corpus_bleu(answers["translation"], references).score}

    def inputs(self, examples: list[Pair]) -> Mapping[str, Sequence[Any]]:
        return {"text": [source for source, _ in examples]}

    def report(self, pipeline: Any, answers: Answers, examples: list[Pair]) -> Report:
        sources, references = zip(*examples, strict=True)
        translations = answers["translation"]
        return translation_report(translations, references, sources, title=pipeline.task)

    def baseline(self, pipeline: Translator, examples: list[Pair]) -> Mapping[str, float]:
        sources, targets = zip(*examples, strict=True)
        return {"bleu_of_copies": corpus_bleu(sources, targets).score}

    def contents(self, examples: list[Pair]) -> Iterable[Content]:
        return contents_of_pairs(examples)

    def split(self, examples: list[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
        train, dev = at_random(len(examples), share, "data: pairs")
        return [examples[i] for i in train], [examples[i] for i in dev]


TRAINER = TranslationTrainer()
