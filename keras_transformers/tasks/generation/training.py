"""Trains text generators: on each next token of texts, or on the assistant's of conversations."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.faults import Content, content
from keras_transformers.data.language_models import RowBatches, TokenStream
from keras_transformers.data.language_models.conversations import (
    ConversationBatches,
    Conversations,
)
from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.in_memory import TEXT, Wanted, headings
from keras_transformers.evaluation import LogProbabilityOfTokens, Perplexity
from keras_transformers.files import read_lines
from keras_transformers.models.packing import with_documents
from keras_transformers.ranges import PositiveInt, Rate
from keras_transformers.runs import Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.generation.messages import (
    has_message_keys,
    is_conversation,
    learned_conversations,
)
from keras_transformers.tasks.generation.pipeline import TextGenerator
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, Trainer, check_column_names
from keras_transformers.training import Decay, TokenCrossentropy, adamw, warmup_schedule

__all__ = ["GenerationOptions"]

_TEXT = Wanted("text", TEXT)
_MESSAGES = Wanted("messages", ("conversations", "conversation"), nullable=True)
_TOOLS = Wanted("tools", ("functions",), required=False, nullable=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationOptions(Training):
    """Options with GPT's rate (Radford et al. 2018, section 4.1); recipes/language_model.py's."""

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 16  # rows of text, or conversations
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


class GenerationTrainer(Trainer[TextGenerator, list[str] | Conversations]):
    """Trains causal language models."""

    options = GenerationOptions
    monitored = "val_log_probability"

    def columns(self, pipeline: TextGenerator) -> Sequence[Wanted]:
        return [_TEXT]

    def table(
        self, pipeline: TextGenerator, data: Any, names: Mapping[str, str]
    ) -> tuple[Any, Sequence[Wanted]]:
        column = data[0] if isinstance(data, tuple) and len(data) == 1 else data
        if isinstance(column, list) and column and is_conversation(column[0]):
            data = {_MESSAGES.name: column}
        in_data = {*headings(data)}
        has_messages = not in_data.isdisjoint((_MESSAGES.name, *_MESSAGES.usual))
        if not names and has_message_keys(in_data) and not has_messages:
            raise ValueError(
                "a row of the data is a message: pass a list of conversations, each a list of "
                "messages, also if there is only one"
            )
        chosen = [name for name in (_TEXT.name, _MESSAGES.name) if name in names]
        if len(chosen) == 2 or (not chosen and has_messages and _TEXT.name in in_data):
            raise ValueError(
                f"the texts and the conversations are two ways to train: pass either "
                f"columns={{{_MESSAGES.name!r}: '...'}}, to learn what the assistant writes, or "
                f"columns={{{_TEXT.name!r}: '...'}}"
            )
        if chosen == [_MESSAGES.name] or (not chosen and has_messages):
            return data, [_MESSAGES, _TOOLS]
        return data, self.columns(pipeline)

    def from_columns(
        self, pipeline: TextGenerator, columns: Columns, source: Source
    ) -> list[str] | Conversations:
        if _MESSAGES.name not in columns:
            return text_columns.checked(columns, _TEXT.name, source)
        tools = enumerate(columns.get(_TOOLS.name, ()))
        check_rows(
            str(source),
            {row: f"tools are not supported: {cell!r:.60}" for row, cell in tools if cell},
        )
        return learned_conversations(columns[_MESSAGES.name], pipeline, source)

    def from_file(
        self, pipeline: TextGenerator, path: Path, columns: Mapping[str, str]
    ) -> list[str]:
        """Reads a text file as one document."""
        check_column_names(columns, path, ())
        return ["\n".join(read_lines(path))]

    def read(
        self, pipeline: TextGenerator, data: Mapping[str, Any], *args: Any, **options: Any
    ) -> list[list[str] | Conversations]:
        sets = super().read(pipeline, data, *args, **options)
        kinds = ["conversations" if isinstance(x, Conversations) else "texts" for x in sets]
        if len(set(kinds)) > 1:
            parts = ", ".join(f"{name} has {kind}" for name, kind in zip(data, kinds, strict=True))
            raise ValueError(f"{parts}: pass the same for both")
        return sets

    def encoded(
        self, pipeline: TextGenerator, examples: list[str] | Conversations
    ) -> TokenStream | Conversations:
        if isinstance(examples, Conversations):
            return examples
        return TokenStream.of(examples, pipeline.tokenizer)

    def model(self, pipeline: TextGenerator, examples: list[str] | Conversations) -> keras.Model:
        is_packed = isinstance(examples, Conversations)
        return with_documents(pipeline.model) if is_packed else pipeline.model

    def batches(
        self, examples: TokenStream | Conversations, pipeline: TextGenerator, **options: Any
    ) -> RowBatches | ConversationBatches:
        if isinstance(examples, Conversations):
            return ConversationBatches(examples, **options)
        # Rows at every cut of a short text: two of them are enough to learn from.
        length = max(1, min(pipeline.max_sequence_length, examples.num_targets // 2))
        return RowBatches(examples, length=length, **options)

    def losses(
        self, pipeline: TextGenerator, examples: list[str] | Conversations, options: Training
    ) -> Mapping[str, Any]:
        return {"loss": {"logits": TokenCrossentropy()}}

    def metrics(self, pipeline: TextGenerator) -> Mapping[str, Any]:
        return {"logits": [Perplexity()]}

    def callbacks(self) -> Sequence[keras.callbacks.Callback]:
        return [LogProbabilityOfTokens()]

    def baseline(
        self, pipeline: TextGenerator, examples: list[str] | Conversations
    ) -> Mapping[str, float]:
        """Returns the perplexity of a unigram model fitted to the tokens that count."""
        counts = np.bincount(self.encoded(pipeline, examples).targets())
        shares = counts[counts > 0] / counts.sum()
        return {"perplexity_of_unigrams": float(np.exp(-np.sum(shares * np.log(shares))))}

    def contents(self, examples: list[str] | Conversations) -> Iterable[Content]:
        if isinstance(examples, Conversations):
            return examples.contents()
        return map(content, examples)

    def split(
        self, examples: list[str] | Conversations, share: float
    ) -> tuple[list[str] | Conversations, list[str] | Conversations]:
        if isinstance(examples, Conversations):
            return super().split(examples, share)
        train, dev = at_random(len(examples), share, "data: texts")
        return [examples[i] for i in sorted(train)], [examples[i] for i in sorted(dev)]


TRAINER = GenerationTrainer()
