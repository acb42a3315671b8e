"""Defines the options for training an encoder-decoder, and creates its parts from them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformers.models.registry import entry
from keras_transformers.ranges import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    Share,
)
from keras_transformers.runs.options import Options
from keras_transformers.training.averaging import AverageLastWeights
from keras_transformers.training.optimizers import adam
from keras_transformers.training.schedules import Decay, warmup_schedule
from keras_transformers.training.teacher_forcing import ForcingDecay, TeacherForcingSchedule

__all__ = ["EncoderDecoderTraining"]

Option = None | bool | int | float | str

# With tens of thousands of pairs, these beat the papers' settings, which the factories default to.
_OPTIONS_OF_FAMILY: dict[str, dict[str, Option]] = {
    "transformer": {"norm_position": "pre", "attention_dropout": 0.0, "feed_forward_dropout": 0.0}
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoderTraining(Options):
    """Holds the options for training any encoder-decoder, the same in all recipes."""

    model: str = "transformer_tiny"  # an encoder-decoder from `keras-transformers list`
    # More arguments for its factory, as names and values: attention additive context input.
    model_options: dict[str, Option] = dataclasses.field(default_factory=dict)
    max_sequence_length: PositiveInt = 128  # tokens; longer pairs are dropped and counted
    dropout: Rate = 0.3  # rate on embeddings and sub-layers
    teacher_forcing: Share = 1.0  # ratio for recurrent models; below 1 they train token by token
    teacher_forcing_decay: ForcingDecay = "constant"  # or from 1 down to it over all epochs

    epochs: PositiveInt = 30
    batch_tokens: PositiveInt = 8192  # source and target, padding included
    decay: Decay = "inverse_sqrt"  # how the learning rate falls after the warm-up
    learning_rate: PositiveFloat = 5e-3  # the peak, after the warm-up
    # updates; if `decay` has an end and all updates are fewer than the default, half of them
    warmup_steps: NonNegativeInt = Default(2000)
    label_smoothing: Rate = 0.1
    clip_norm: PositiveFloat | None = 1.0
    # recent weights to average; the average is kept if it beats the last ones on val
    average: PositiveInt = 5
    average_every: PositiveInt | None = None  # updates between averaged weights; None: an epoch
    patience: NonNegativeInt = 10  # epochs without a better figure on val before training stops

    num_beams: PositiveInt = 4
    length_penalty: NonNegativeFloat = 0.6
    name: str = "encoder_decoder"  # the run's folder in runs_dir

    def check(self) -> None:
        """Checks the options before reading any data.

        Raises:
            ValueError: see `model_arguments` and `Options.check`.
        """
        super().check()
        self.model_arguments(vocabulary_size=1)

    def model_arguments(
        self, vocabulary_size: int, target_vocabulary_size: int | None = None
    ) -> dict[str, Any]:
        """Returns the arguments for the model's factory.

        By default a Transformer normalizes before each sub-layer and has no dropout except
        `dropout`; `model_options` can change that. The factory's defaults apply to the rest.

        Args:
            vocabulary_size: number of tokens.
            target_vocabulary_size: size of a separate target vocabulary; None if both sides share
                one.

        Raises:
            ValueError: the model is not registered; `model_options` repeats another option, or
                shares a matrix between two vocabularies; or teacher forcing would decay to 1.
        """
        arguments: dict[str, Any] = {
            "vocabulary_size": vocabulary_size,
            **self.pick("max_sequence_length", "dropout"),
        }
        # With a ratio of 1 recurrent models train on the fast path; other models have none.
        if self.teacher_forcing != 1:
            arguments["teacher_forcing"] = self.teacher_forcing
        elif self.teacher_forcing_decay != "constant":
            raise ValueError(
                f"--teacher-forcing-decay {self.teacher_forcing_decay} goes from 1 down to "
                "--teacher-forcing, which is 1: use a lower one"
            )
        others = {"teacher_forcing", "target_vocabulary_size", "pad_token_id", "name"}
        refused = arguments.keys() | others
        if repeated := sorted(refused & self.model_options.keys()):
            raise ValueError(
                f"--model-options {', '.join(repeated)}: the recipe sets this; leave it out"
            )
        defaults = _OPTIONS_OF_FAMILY.get(entry(self.model).family, {})
        if target_vocabulary_size is not None:
            arguments["target_vocabulary_size"] = target_vocabulary_size
            if self.model_options.get("weight_tying") == "all":
                raise ValueError(
                    "--model-options weight_tying all: two vocabularies cannot share a matrix; "
                    "use decoder or none"
                )
            if defaults:  # the Transformer's, which shares it by default
                defaults = {**defaults, "weight_tying": "decoder"}
        return defaults | self.model_options | arguments

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return self.pick("batch_tokens", "accumulate", "seed", "static_shapes")

    def averaging(self) -> AverageLastWeights:
        """Returns the callback that averages the last weights."""
        return AverageLastWeights(num_kept=self.average, frequency=self.average_every or "epoch")

    def optimizer(
        self, steps_per_epoch: int, *, ema: float | None = None
    ) -> keras.optimizers.Optimizer:
        """Returns Adam with a warm-up and `decay`. For `ema`, see `training.adam`.

        Raises:
            ValueError: the warm-up is longer than the training, and `decay` has an end; or
                `average_every` is longer than an epoch, or set together with `ema`, whose weights
                are in the model only between epochs.
        """
        if self.average_every and self.average_every > steps_per_epoch:
            raise ValueError(
                f"--average-every {self.average_every}: an epoch has only {steps_per_epoch} "
                "updates; use fewer, or leave it out"
            )
        if self.average_every and ema:
            raise ValueError("--average-every and --ema: use only one of them")
        total_steps = self.epochs * steps_per_epoch
        warmup_steps = self.warmup_steps
        is_too_long = self.decay != "inverse_sqrt" and warmup_steps > total_steps
        if is_too_long and isinstance(warmup_steps, Default):
            warmup_steps = total_steps // 2
        elif is_too_long:
            raise ValueError(
                f"--warmup-steps {warmup_steps}: the training has only {total_steps} updates, "
                f"{self.epochs} epochs of {steps_per_epoch}; use fewer, or --decay inverse_sqrt"
            )
        schedule = warmup_schedule(
            self.decay,
            self.learning_rate,
            warmup_steps=warmup_steps,
            total_steps=total_steps,
        )
        return adam(schedule, clip_norm=self.clip_norm, ema=ema)

    def monitoring(
        self,
        monitor: str,
        steps_per_epoch: int,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> dict[str, Any]:
        """Returns the arguments of `Run.prepare` for validation and teacher forcing.

        Args:
            monitor: the figure that must rise, and that decides the best epoch.
            steps_per_epoch: updates per epoch.
            callbacks: other callbacks of the recipe.
        """
        forcing = []
        if self.teacher_forcing != 1:
            total_steps = self.epochs * steps_per_epoch
            schedule = TeacherForcingSchedule(
                self.teacher_forcing_decay,
                final_ratio=self.teacher_forcing,
                total_steps=total_steps,
            )
            forcing.append(schedule)
        return {"monitor": monitor, "callbacks": [*forcing, *callbacks]}
