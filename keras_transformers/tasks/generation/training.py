"""Trains text generators: texts, of which a causal language model learns each next token."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from keras_transformers.data.faults import Content, content
from keras_transformers.data.language_models import RowBatches, TokenStream
from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import TEXT, Wanted
from keras_transformers.evaluation import LogProbabilityOfTokens, Perplexity
from keras_transformers.files import read_lines
from keras_transformers.ranges import PositiveInt, Rate
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.generation.pipeline import TextGenerator
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Trainer, check_column_names
from keras_transformers.training import Decay, TokenCrossentropy, adamw, warmup_schedule

__all__ = ["GenerationOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationOptions(Training):
    """Options with GPT's rate (Radford et al. 2018, section 4.1); recipes/language_model.py's."""

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 16  # rows
    # GPT-3's cosine, with beta_2 0.95 and a weight decay of 0.1 (Brown et al. 2020), is worse for a
    # small GPT (benchmarks/results/defaults.txt).
    decay: Decay = "linear"  # of the learning rate, after the warm-up
    beta_2: Rate = 0.999  # AdamW's decay of the squared gradients' average

    rate: ClassVar[float] = 6.25e-5
    medium_rate: ClassVar[float] = 6.25e-5
    small_rate: ClassVar[float] = 2e-3

    def schedule(
        self, model: keras.Model, steps_per_epoch: int
    ) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then `decay`."""
        return warmup_schedule(self.decay, **self.course(model, steps_per_epoch))

    def optimizer(self, model: keras.Model, steps_per_epoch: int) -> keras.optimizers.Optimizer:
        """Returns AdamW with `schedule`."""
        return adamw(
            self.schedule(model, steps_per_epoch),
            beta_2=self.beta_2,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
        )


class GenerationTrainer(Trainer[TextGenerator, list[str]]):
    """Trains causal language models."""

    options = GenerationOptions
    monitored = "val_log_probability"

    def columns(self, pipeline: TextGenerator) -> Sequence[Wanted]:
        return [Wanted("text", TEXT)]

    def from_columns(self, pipeline: TextGenerator, columns: Columns, source: Source) -> list[str]:
        return text_columns.checked(columns, "text", source)

    def from_file(
        self, pipeline: TextGenerator, path: Path, columns: Mapping[str, str]
    ) -> list[str]:
        """Reads a text file as one document."""
        check_column_names(columns, path, ())
        return ["\n".join(read_lines(path))]

    def encoded(self, pipeline: TextGenerator, examples: list[str]) -> TokenStream:
        return TokenStream.of(examples, pipeline.tokenizer)

    def batches(self, examples: TokenStream, pipeline: TextGenerator, **options: Any) -> RowBatches:
        # Rows at every cut of a short text: two of them are enough to learn from.
        length = max(1, min(pipeline.max_sequence_length, examples.num_targets // 2))
        return RowBatches(examples, length=length, **options)

    def losses(
        self, pipeline: TextGenerator, examples: list[str], options: Training
    ) -> Mapping[str, Any]:
        return {"loss": {"logits": TokenCrossentropy()}}

    def metrics(self, pipeline: TextGenerator) -> Mapping[str, Any]:
        return {"logits": [Perplexity()]}

    def callbacks(self) -> Sequence[keras.callbacks.Callback]:
        return [LogProbabilityOfTokens()]

    def baseline(self, pipeline: TextGenerator, examples: list[str]) -> Mapping[str, float]:
        """Returns the perplexity of a unigram model fitted to this same text."""
        counts = np.bincount(self.encoded(pipeline, examples).token_ids[1:])
        shares = counts[counts > 0] / counts.sum()
        return {"perplexity_of_unigrams": float(np.exp(-np.sum(shares * np.log(shares))))}

    def contents(self, examples: list[str]) -> Iterable[Content]:
        return map(content, examples)

    def split(self, examples: list[str], share: float) -> tuple[list[str], list[str]]:
        train, dev = at_random(len(examples), share, "data: texts")
        return [examples[i] for i in sorted(train)], [examples[i] for i in sorted(dev)]


TRAINER = GenerationTrainer()
