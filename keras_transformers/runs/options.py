"""Defines the options that all recipes share."""

import dataclasses
import logging
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import keras

from keras_transformers.convert.formats.weights import (
    has_weights,
    num_positions,
    why_not_weights,
)
from keras_transformers.dependencies.extras import optional
from keras_transformers.files.compression import compressed_names
from keras_transformers.ranges import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    as_option,
    check_ranges,
)
from keras_transformers.training.schedules import WarmupLinearDecay
from keras_transformers.training.strategies import Precision, StrategyName

__all__ = ["Confidence", "Options", "Pretraining"]

logger = logging.getLogger(__name__)


# Paths that need not exist: they are written, or their reader has a better error message.
_UNCHECKED = {"runs_dir", "export", "save", "records", "data"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """Holds the options that say where a run trains.

    The batch size counts all replicas together, but only one part of an accumulated batch.
    """

    strategy: StrategyName = "default"  # default: one device; see docs/distributed_training.md
    workers: tuple[str, ...] = ()  # for multi_worker: host:port of each, the same list everywhere
    worker_index: NonNegativeInt | None = None  # this process's index in that list, from 0
    precision: Precision = "float32"  # under a strategy, prefer mixed_bfloat16
    accumulate: PositiveInt = 1  # batches per update, equal to one large batch
    recompute: bool = False  # keep only layer inputs: less memory, one more forward pass
    # full batches of at most this many shapes, for XLA; use 1 on TPUs
    static_shapes: PositiveInt | None = None

    @property
    def jit_compile(self) -> bool:
        """Whether `compile` should use XLA; strategies do not, or decide for themselves (TPUs)."""
        return self.static_shapes is not None and self.strategy == "default"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Logging:
    """Holds the options that say what a run reports while it trains."""

    quiet: bool = False  # no progress on standard output, for batch jobs
    log_json: str | None = None  # also write JSON lines, to this file or to stdout
    log_every: PositiveInt = 100  # steps between figures in TensorBoard and JSON
    profile: bool = False  # profile steps 10 to 14 for TensorBoard
    peak_flops: PositiveFloat | None = None  # peak per second of one accelerator, such as 312e12
    mlflow: bool = False  # log the run to MLflow; see docs/tracking.md
    tensorboard_samples: NonNegativeInt = 4  # first validation examples to show with their answers
    tensorboard_attention: bool = False  # draw that of the first sample; needs matplotlib
    tensorboard_histograms: bool = False  # write those of all weights after each epoch
    tensorboard_embeddings: NonNegativeInt = 0  # first tokens to show in the projector, at the end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confidence:
    """Holds the options of tasks with probabilities; they change no weights."""

    calibrate: bool = False  # fit a temperature to the validation data, after the training
    abstain_below: Share | None = None  # mark answers with a lower probability as abstained


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Scaling, Logging):
    """Holds the options of every recipe: the run's folder, its checkpoints and its results."""

    resume: bool = False  # continue a stopped run as if it had not stopped, or start one
    # steps between checkpoints, in addition to those after each epoch
    checkpoint_every: PositiveInt | None = None
    checkpoint_minutes: PositiveFloat | None = None  # the longest time between checkpoints

    # a figure of each epoch's logs that decides which is best, such as val_loss; None: the task's
    monitor: str | None = None
    patience: NonNegativeInt | None = None  # epochs without a better one before training stops

    r_drop: NonNegativeFloat = 0.0  # R-Drop's alpha: makes two passes agree, in twice the time

    seed: Seed = 0  # for new weights, dropout and the order of the examples
    name: str = "run"  # the run's folder in runs_dir
    runs_dir: Path = Path("runs")
    export: Path | None = None  # write a SavedModel here, such as saved_models/sentiment/1
    weights_dtype: Literal["float32", "bfloat16", "int8"] = "float32"  # for exported matrices
    ops: Literal["tensorflow-text", "core"] | None = None  # core: exports need no tensorflow-text
    save: Path | None = None  # save the pipeline to this new folder, for keras_transformers.load

    # The options that count tokens, each of which takes a position of the model.
    lengths: ClassVar[tuple[str, ...]] = ()

    def pick(self, *names: str) -> dict[str, Any]:
        """Returns some of the options as keyword arguments."""
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Checks the options before reading any data.

        Recipes add checks of their own options.

        Raises:
            FileNotFoundError: a file or folder to read does not exist.
            ImportError: an option needs a package that is not installed.
            ValueError: a number is out of range, a label occurs twice, or the name is not the name
                of a folder; the message has the option and its value.
        """
        check_ranges(type(self), vars(self), written=as_option)
        if self.tensorboard_attention:
            optional("matplotlib", extra="translation")  # now, not after an epoch
        if self.mlflow:
            optional("mlflow", extra="tracking")
        labels = getattr(self, "labels", ())
        if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
            raise ValueError(
                f"{as_option('labels', labels)}: {twice[0]!r} occurs twice; list it once"
            )
        place = Path(self.name)
        if not place.name or place.is_absolute() or ".." in place.parts:
            raise ValueError(f"--name {self.name!r}: must be the name of a folder in --runs-dir")
        for field in dataclasses.fields(self):
            if field.name not in _UNCHECKED:
                for path in _paths(getattr(self, field.name)):
                    _check_exists(field.name, path)

    def fitted(self) -> Self:
        """Returns the options with default lengths that the model of `weights` has positions for.

        It logs the lengths. Those that the user sets stay as they are.

        Raises:
            FileNotFoundError: a file of the weights is missing.
            ValueError: one is damaged, or of an unknown kind.
        """
        weights = getattr(self, "weights", None)
        values = {name: getattr(self, name) for name in self.lengths}
        defaults = {name: value for name, value in values.items() if isinstance(value, Default)}
        if not weights or not defaults:
            return self
        positions = num_positions(weights)
        has = "takes texts of any length" if positions is None else f"has {positions} positions"
        fitting: dict[str, Any] = {
            name: value.at_most(positions) for name, value in defaults.items()
        }
        for name, value in fitting.items():
            default = defaults[name]
            why = f"fewer than the default, {default}" if value < default else "this is the default"
            logger.info("%s: %s %s; %s", as_option(name, value), weights, has, why)
        return dataclasses.replace(self, **fitting)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(Options):
    """Holds the options of every pretraining: an epoch is a number of updates, not of texts."""

    epochs: PositiveInt = 10
    steps_per_epoch: PositiveInt = 1000  # updates until the next validation and checkpoint
    learning_rate: PositiveFloat = 1e-3  # the peak, after the warm-up
    warmup_fraction: Share = 0.1  # share of all updates
    batch_size: PositiveInt = 64  # rows per forward pass, over all replicas
    clip_norm: PositiveFloat = 1.0

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return self.pick("batch_size", "accumulate", "steps_per_epoch", "seed", "static_shapes")

    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then linear decay to 0 after the last update."""
        num_updates = self.epochs * self.steps_per_epoch
        return WarmupLinearDecay(
            self.learning_rate,
            warmup_steps=round(self.warmup_fraction * num_updates),
            total_steps=num_updates,
        )


def _paths(value: Any) -> list[Path]:
    """Returns the paths in an option's value, which may be a tuple."""
    values = value if isinstance(value, tuple) else (value,)
    return [path for path in values if isinstance(path, Path)]


def _check_exists(name: str, path: Path) -> None:
    """Checks a path to read, which may lack the suffix of the file's compression.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it should hold weights, but has none in a known format.
    """
    if name == "weights" and has_weights(path):
        return
    if not any(place.exists() for place in (path, *compressed_names(path))):
        raise FileNotFoundError(f"{as_option(name, path)}: no such file or folder; check the path")
    if name == "weights":
        raise ValueError(f"--{name}: {why_not_weights(path)}")


# Options that do not affect the weights, so a resumed run may change them. `workers` and
# `worker_index` also differ between the workers of one run.
MAY_DIFFER = frozenset(
    {
        *("resume", "checkpoint_every", "checkpoint_minutes", "workers", "worker_index"),
        *("export", "weights_dtype", "ops", "save"),
        *(field.name for part in (Logging, Confidence) for field in dataclasses.fields(part)),
    }
)
