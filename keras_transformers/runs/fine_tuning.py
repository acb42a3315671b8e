"""The options for fine-tuning, and what is made from them."""

import dataclasses
from pathlib import Path
from typing import Any

import keras

from keras_transformers.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Rate, Share
from keras_transformers.runs.options import Options
from keras_transformers.training.optimizers import adamw
from keras_transformers.training.schedules import WarmupLinearDecay

__all__ = ["EncoderSource", "EncoderTuning", "ModelSource", "Training", "Tuning"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Options):
    """The options for training with AdamW, the same in all recipes."""

    epochs: PositiveInt = 3
    batch_size: PositiveInt = 32
    learning_rate: PositiveFloat = 1e-4  # the highest, after the warm-up
    warmup_fraction: Share = 0.1  # of all updates
    weight_decay: NonNegativeFloat = 0.01
    clip_norm: PositiveFloat = 1.0
    dropout: Rate = 0.1  # in the model, its attention and the head

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return self.pick("batch_size", "accumulate", "seed", "static_shapes")

    def schedule(self, steps_per_epoch: int) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then linear decay to 0 after the last update."""
        num_updates = self.epochs * steps_per_epoch
        return WarmupLinearDecay(
            self.learning_rate,
            warmup_steps=round(self.warmup_fraction * num_updates),
            total_steps=num_updates,
        )

    def optimizer(self, steps_per_epoch: int) -> keras.optimizers.Optimizer:
        """Returns AdamW with `schedule`, as BERT was fine-tuned."""
        schedule = self.schedule(steps_per_epoch)
        return adamw(schedule, weight_decay=self.weight_decay, clip_norm=self.clip_norm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(Training):
    """The options for fine-tuning any model."""

    max_sequence_length: PositiveInt = 128  # tokens per input, special ones included
    grid: bool = False  # one run per learning rate and batch size of BERT's appendix A.3

    name: str = "fine_tuning"  # the run's folder in runs_dir


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource(Training):
    """The options that choose the model and its vocabulary."""

    weights: Path | None = None  # whatever keras_transformers.load takes: a folder, hf://...
    model: str | None = None  # instead: one of `keras-transformers list`, random weights
    vocabulary: Path | None = None  # vocab.txt for --model; --weights brings its own

    def check(self) -> None:
        """Checks what costs nothing to check, before anything is read.

        Raises:
            ValueError: neither or both of two sources are given. See also `Options.check`.
        """
        super().check()
        given = bool(self.weights), bool(self.model), bool(self.vocabulary)
        if given not in ((True, False, False), (False, True, True)):
            raise ValueError("pass either --weights FOLDER, or --model NAME and --vocabulary FILE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderSource(ModelSource):
    """The options that choose the encoder."""

    lowercase: bool | None = None  # as the files of --weights say; with --vocabulary, true

    def encoder_source(self) -> dict[str, Any]:
        """Returns the arguments for `convert.load_encoder`."""
        return self.pick("weights", "model", "vocabulary", "lowercase", "dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderTuning(EncoderSource, Tuning):
    """The options for fine-tuning an encoder."""
