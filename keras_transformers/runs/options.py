"""The options that all recipes share."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import keras

from keras_transformers.training.schedules import WarmupLinearDecay
from keras_transformers.training.strategies import Precision, StrategyName

__all__ = ["Options", "Pretraining"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """Where a run trains.

    The batch size counts all replicas together, but only one part of an accumulated batch.
    """

    strategy: StrategyName = "default"  # default: one device; see docs/distributed_training.md
    workers: tuple[str, ...] = ()  # for multi_worker: host:port of each, the same list everywhere
    worker_index: int | None = None  # the place of this process in that list, from 0
    precision: Precision = "float32"  # under a strategy, prefer mixed_bfloat16
    accumulate: int = 1  # batches per update, which equals the update of one large batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Logging:
    """What a run reports while it trains."""

    quiet: bool = False  # no progress on standard output, for batch jobs
    log_json: str | None = None  # also one JSON object per line, to this file or to stdout
    log_every: int = 100  # steps between figures in TensorBoard and JSON
    profile: bool = False  # profiles steps 10 to 14 for TensorBoard
    peak_flops: float | None = None  # per second of one accelerator, such as 312e12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Scaling, Logging):
    """The base of every recipe's configuration."""

    resume: bool = False  # continue a stopped run as if it had not stopped; or start a new one
    checkpoint_every: int | None = None  # steps between checkpoints, besides those after epochs

    seed: int = 0  # for new weights, dropout and the order of the examples
    name: str = "run"  # the run's folder in runs_dir
    runs_dir: Path = Path("runs")
    export: Path | None = None  # write a SavedModel here, such as saved_models/sentiment/1
    weights_dtype: Literal["float32", "bfloat16"] = "float32"  # of the exported matrices

    def pick(self, *names: str) -> dict[str, Any]:
        """Returns some of the options as keyword arguments."""
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(Options):
    """The base of a pretraining's configuration: an epoch is a number of updates, not of texts."""

    epochs: int = 10
    steps_per_epoch: int = 1000  # updates until the next validation and checkpoint
    learning_rate: float = 1e-3  # the highest, after the warm-up
    warmup_fraction: float = 0.1  # of all updates
    clip_norm: float = 1.0

    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then linear decay to 0 after the last update."""
        num_updates = self.epochs * self.steps_per_epoch
        return WarmupLinearDecay(
            self.learning_rate,
            warmup_steps=round(self.warmup_fraction * num_updates),
            total_steps=num_updates,
        )


# Options that do not affect the weights, so a resumed run may change them. `workers` and
# `worker_index` also differ between the workers of one run.
MAY_DIFFER = frozenset(
    {
        *("resume", "checkpoint_every", "export", "weights_dtype", "workers", "worker_index"),
        *(field.name for field in dataclasses.fields(Logging)),
    }
)
