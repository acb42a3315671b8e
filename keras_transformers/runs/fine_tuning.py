"""Defines the options for fine-tuning, and creates optimizers and batches from them."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

import keras

from keras_transformers.data.weighting import ClassWeighting
from keras_transformers.ranges import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    Share,
)
from keras_transformers.runs.options import Confidence, Options
from keras_transformers.training.optimizers import adamw
from keras_transformers.training.schedules import WarmupLinearDecay

_FEW_PARAMETERS, _MANY_PARAMETERS = 10_000_000, 50_000_000

__all__ = [
    "EncoderSource",
    "EncoderTuning",
    "LabelTraining",
    "LongTextReading",
    "ModelSource",
    "Training",
    "Tuning",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Options):
    """Holds the options for training with AdamW, the same in all recipes and in `fit`.

    BERT's appendix A.3 uses 2 to 4 epochs and batches of 16 or 32 (Devlin et al. 2019).

    Attributes:
        rate: the learning rate of models with 50 million parameters or more, if none is set.
        medium_rate: that of smaller ones with 10 million or more.
        small_rate: that of models with fewer.
        epsilon: see `training.adamw`.
    """

    epochs: PositiveInt = 3
    batch_size: PositiveInt = 32
    learning_rate: PositiveFloat | None = None  # the peak, after the warm-up; None: by model size
    warmup_fraction: Share = 0.1  # share of all updates
    weight_decay: NonNegativeFloat = 0.01
    clip_norm: PositiveFloat = 1.0
    dropout: Rate = 0.1  # rate in the model, its attention and the head

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return self.pick("batch_size", "accumulate", "seed", "static_shapes")

    # BERT's appendix A.3 tries 2e-5, 3e-5 and 5e-5.
    rate: ClassVar[float] = 5e-5
    # The better of 5e-5 and 1e-4 for MiniLM on five tasks (benchmarks/results/defaults.txt).
    medium_rate: ClassVar[float] = 1e-4
    # The best for a BERT of 1.9 million parameters on SST-2 (recipes/classification.py).
    small_rate: ClassVar[float] = 1e-3
    epsilon: ClassVar[float] = 1e-6

    def rate_for(self, model: keras.Model) -> float:
        """Returns the learning rate for a model if none is set."""
        count = model.count_params()
        if count < _FEW_PARAMETERS:
            return self.small_rate
        return self.medium_rate if count < _MANY_PARAMETERS else self.rate

    def course(self, model: keras.Model, steps_per_epoch: int) -> dict[str, Any]:
        """Returns the arguments that every schedule takes: the peak and the numbers of updates."""
        num_updates = self.epochs * steps_per_epoch
        return {
            "peak_learning_rate": self.learning_rate or self.rate_for(model),
            "warmup_steps": round(self.warmup_fraction * num_updates),
            "total_steps": num_updates,
        }

    def schedule(
        self, model: keras.Model, steps_per_epoch: int
    ) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then linear decay to 0 after the last update."""
        return WarmupLinearDecay(**self.course(model, steps_per_epoch))

    def optimizer(self, model: keras.Model, steps_per_epoch: int) -> keras.optimizers.Optimizer:
        """Returns AdamW with `schedule`, as BERT was fine-tuned."""
        schedule = self.schedule(model, steps_per_epoch)
        return adamw(
            schedule,
            weight_decay=self.weight_decay,
            epsilon=self.epsilon,
            clip_norm=self.clip_norm,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelTraining(ClassWeighting, Confidence, Training):
    """Holds the options for training on labelled data."""

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return {**super().batching(), "class_weight": self.class_weight}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(Training):
    """Holds the options for fine-tuning any model."""

    max_sequence_length: PositiveInt = Default(128)  # tokens per input, special ones included
    grid: bool = False  # one run per learning rate and batch size of BERT's appendix A.3

    name: str = "fine_tuning"  # the run's folder in runs_dir

    lengths: ClassVar[tuple[str, ...]] = ("max_sequence_length",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTextReading:
    """Holds the options for texts longer than a model reads at once."""

    # cut: leave out what exceeds max_sequence_length; windows: read all of it in windows that long
    long_texts: Literal["cut", "windows"] = "cut"
    window_pooling: Literal["mean", "max"] = "mean"  # of the outputs for a text's windows
    # tokens that a window shares with the next; None: an eighth of max_sequence_length
    window_overlap: NonNegativeInt | None = None

    def reading(self) -> dict[str, Any]:
        """Returns the options for the pipeline."""
        return {
            field.name: getattr(self, field.name) for field in dataclasses.fields(LongTextReading)
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource(Training):
    """Holds the options that choose the model and its vocabulary."""

    weights: Path | None = None  # a source for keras_transformers.load: a folder, hf://...
    model: str | None = None  # a new model instead: a name in `keras-transformers list`
    vocabulary: Path | None = None  # vocab.txt for --model; --weights includes one

    def check(self) -> None:
        """Checks the options before reading any data.

        Raises:
            ValueError: both sources are set, or neither. See also `Options.check`.
        """
        super().check()
        sources = bool(self.weights), bool(self.model), bool(self.vocabulary)
        if sources not in ((True, False, False), (False, True, True)):
            raise ValueError("pass either --weights FOLDER, or --model NAME and --vocabulary FILE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderSource(ModelSource):
    """Holds the options that choose the encoder."""

    lowercase: bool | None = None  # default: as in the files of --weights; true with --vocabulary

    def encoder_source(self) -> dict[str, Any]:
        """Returns the arguments for `convert.load_encoder`."""
        return self.pick("weights", "model", "vocabulary", "lowercase", "dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderTuning(EncoderSource, Tuning):
    """Holds the options for fine-tuning an encoder."""
