"""The options of training an encoder-decoder, and what they make."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformers.runs.options import Options
from keras_transformers.training.optimizers import adam
from keras_transformers.training.schedules import Decay, warmup_schedule
from keras_transformers.training.teacher_forcing import ForcingDecay, TeacherForcingSchedule

__all__ = ["EncoderDecoderTraining"]

Option = None | bool | int | float | str

# Better on some ten thousand pairs than the papers' settings, which are the factories' defaults.
_OPTIONS_OF_FAMILY: dict[str, dict[str, Option]] = {
    "transformer": {"norm_position": "pre", "attention_dropout": 0.0, "feed_forward_dropout": 0.0}
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoderTraining(Options):
    """The options of training any encoder-decoder; they mean the same in all recipes."""

    model: str = "transformer_tiny"  # an encoder-decoder of `keras-transformers list`
    # More arguments of its factory, each a name and a value: attention additive context input.
    model_options: dict[str, Option] = dataclasses.field(default_factory=dict)
    max_sequence_length: int = 128  # tokens; longer pairs are dropped and counted
    dropout: float = 0.3  # on embeddings and sub-layers
    teacher_forcing: float = 1.0  # ratio, of recurrent models; below 1 they train token by token
    teacher_forcing_decay: ForcingDecay = "constant"  # or from 1 down to it, during all epochs

    epochs: int = 30
    batch_tokens: int = 8192  # source and target together, padding included
    decay: Decay = "inverse_sqrt"  # of the learning rate, after the warm-up
    learning_rate: float = 5e-3  # the highest, after the warm-up
    warmup_steps: int = 2000
    label_smoothing: float = 0.1
    clip_norm: float | None = 1.0
    average: int = 5  # epochs; their mean is the model if it does better on val than the last
    patience: int = 10  # epochs without a better figure on val before training stops

    num_beams: int = 4
    length_penalty: float = 0.6
    name: str = "encoder_decoder"  # the run's folder in runs_dir

    def model_arguments(self, vocabulary_size: int) -> dict[str, Any]:
        """The arguments of the model's factory.

        A Transformer has its norms before the sub-layers and no dropout but `dropout`, unless
        `model_options` say otherwise; the rest is the factory's own default.

        Raises:
            ValueError: `model_options` repeat another option, or teacher forcing decays to 1.
        """
        own: dict[str, Any] = {
            "vocabulary_size": vocabulary_size,
            **self.pick("max_sequence_length", "dropout"),
        }
        # Built with 1 a recurrent model trains on the fast path, and others know no other ratio.
        if self.teacher_forcing != 1:
            own["teacher_forcing"] = self.teacher_forcing
        elif self.teacher_forcing_decay != "constant":
            raise ValueError(
                f"--teacher-forcing-decay {self.teacher_forcing_decay} goes from 1 down to "
                "--teacher-forcing, which is 1: give a lower one"
            )
        refused = own.keys() | {"teacher_forcing", "target_vocabulary_size", "pad_token_id", "name"}
        if repeated := sorted(refused & self.model_options.keys()):
            raise ValueError(f"--model-options {', '.join(repeated)}: the recipe sets this itself")
        defaults = _OPTIONS_OF_FAMILY.get(self.model.split("_")[0], {})
        return defaults | self.model_options | own

    def batching(self) -> dict[str, Any]:
        """The arguments of the training batches in these options."""
        return self.pick("batch_tokens", "accumulate", "seed")

    def optimizer(
        self, steps_per_epoch: int, *, ema: float | None = None
    ) -> keras.optimizers.Optimizer:
        """Adam with the schedule of these options; `ema` as for `training.adam`."""
        schedule = warmup_schedule(
            self.decay,
            self.learning_rate,
            warmup_steps=self.warmup_steps,
            total_steps=self.epochs * steps_per_epoch,
        )
        return adam(schedule, clip_norm=self.clip_norm, ema=ema)

    def fit_options(
        self,
        monitor: str,
        steps_per_epoch: int,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> dict[str, Any]:
        """The arguments of `Run.fit_arguments` in these options.

        Training ends when `patience` epochs in a row brought no higher figure.

        Args:
            monitor: that figure, which also decides the best epoch.
            steps_per_epoch: updates.
            callbacks: others of the recipe.
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
        stopping = keras.callbacks.EarlyStopping(monitor, mode="max", patience=self.patience)
        return {
            "monitor": monitor,
            "callbacks": [*forcing, *callbacks],
            "last_callbacks": [stopping],
        }
