"""A run: what surrounds `model.fit` in every recipe, and the folder where it leaves its files.

A run lives in `runs/<name>/`: `config.json`, `tensorboard/`, `best.weights.h5` of the best epoch
and `last.weights.h5` of the newest, `checkpoints/` to resume from, `metrics.json`.
"""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers import files
from keras_transformers.data.batching import Batches
from keras_transformers.inspection import update_cost
from keras_transformers.runs import clusters, preemption
from keras_transformers.runs.callbacks import standard_callbacks, update_costs, verbosity
from keras_transformers.runs.options import MAY_DIFFER, Options
from keras_transformers.runs.resume.callback import Position, Resume
from keras_transformers.runs.validation import Validation
from keras_transformers.runs.weights_files import write_weights
from keras_transformers.runs.workers import is_chief, load_weights
from keras_transformers.saved_model.exporting import export
from keras_transformers.saved_model.versions import split_target
from keras_transformers.training.averaging import CheckpointAveraging
from keras_transformers.training.distributed import prepare
from keras_transformers.training.strategies import Shard, create, shard

__all__ = ["NoBestEpochError", "Run", "check_new_run", "check_same"]

BEST_WEIGHTS = "best.weights.h5"
LAST_WEIGHTS = "last.weights.h5"
CHOSEN_WEIGHTS = "chosen.weights.h5"
METRICS = "metrics.json"
CONFIG = "config.json"


class NoBestEpochError(ArithmeticError):
    """The figure that decides which epoch is best was NaN in all of them."""


class Run:
    """One training, from its options to its files.

        with run.scope():
            model = ...
            model.compile(...)
        model.fit(**run.fit_arguments(model, batches, validation=dev, monitor="val_accuracy"))
        run.load_best()
        run.finish(pipeline, {"dev_accuracy": ...})

    Making one sets strategy, precision and seed and joins the other workers, so it comes before
    anything else TensorFlow does.

    Args:
        config: the recipe's options.

    Attributes:
        config: as given.
        folder: of the run; `make_folder` creates it.
        is_prepared: whether `fit_arguments` was called: before that, errors are the user's.

    Raises:
        FileExistsError: the run exists and does not resume, or the export exists.
        ValueError: it resumes with other options (the message lists the differences), an option is
            wrong, or there is no such device.
    """

    def __init__(self, config: Options) -> None:
        self.config = config
        self.folder = config.runs_dir / config.name
        self.is_prepared = False
        self._started = time.time()
        self._model: Any = None
        self._monitor: str | None = None
        self._resume: Resume | None = None
        self._callbacks: list[keras.callbacks.Callback] = []
        _begin_strategy(config)
        if config.resume and (self.folder / CONFIG).is_file():
            check_same(self.folder, config, may_differ=MAY_DIFFER)
        elif is_chief():
            check_new_run(self.folder)
            if config.resume:  # one command for a scheduler, the first time and all others
                print(f"{self.folder}: nothing to resume, so the run starts")
        if config.export and is_chief():
            split_target(config.export)
        keras.utils.set_random_seed(config.seed)

    @property
    def epochs(self) -> list[dict[str, float]]:
        """The logs of every epoch so far, each with its number from 1, `epoch`."""
        return self._resume.epochs if self._resume else []

    @property
    def seconds(self) -> float:
        """Since the run started or was resumed."""
        return time.time() - self._started

    @property
    def position(self) -> Position:
        """How far the training is; a resumed one does not start at zero."""
        return self._resume.position if self._resume else Position()

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Where the model is built and compiled."""
        if self.config.strategy == "default":
            return contextlib.nullcontext()
        return create(self.config.strategy).scope()

    def make_folder(self) -> Path:
        """Creates the run's folder with the configuration, and returns it.

        `fit_arguments` does so; call it only if files go there earlier. All options should be known
        to be sound by then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if is_chief():
            files.write_json(self.folder / CONFIG, dataclasses.asdict(self.config))
        return self.folder

    def restore(
        self,
        model: keras.Model,
        *,
        score: Callable[[], Mapping[str, float]] | None = None,
        score_every: int = 1,
        monitor: str | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        last_callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> Position:
        """Prepares the model for the options, and continues where a stopped run was.

        Weights, optimizer, random numbers and metrics are restored bit for bit. `fit_arguments`
        does all this; call it only if `position` is needed before, with the same arguments.
        """
        config = self.config
        prepare(model, accumulate=config.accumulate)
        self._model, self._monitor = model, monitor
        self._resume = Resume(self.folder / "checkpoints", every=config.checkpoint_every)
        self._callbacks = [
            *callbacks,
            *([Validation(score, every=score_every, monitor=monitor)] if score else []),
            *standard_callbacks(
                self.folder, config, last=LAST_WEIGHTS, best=BEST_WEIGHTS, monitor=monitor
            ),
            *last_callbacks,
            self._resume,
        ]
        self.make_folder()
        return self._resume.restore(model, self._callbacks)

    def fit_arguments(
        self,
        model: keras.Model,
        batches: Batches,
        *,
        validation: Batches | None = None,
        score: Callable[[], Mapping[str, float]] | None = None,
        score_every: int = 1,
        monitor: str | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        last_callbacks: Sequence[keras.callbacks.Callback] = (),
        epochs: range | None = None,
        shard_by: Shard = "element",
        flops_rules: Mapping[type, Any] | None = None,
    ) -> dict[str, Any]:
        """What `model.fit` takes: batches, callbacks, and where to start.

        A stopped run continues bit for bit; the batches that are done are skipped.

        Args:
            model: built and compiled in `scope`.
            batches: to train on.
            validation: measured by Keras after each epoch.
            score: measured after each epoch as well; its figures get the prefix "val_" in the logs.
            score_every: epochs between calls of `score`; the others repeat its last figures, and
                before the first call `monitor` is 0.
            monitor: the figure that decides which epoch is best, the higher the better; None keeps
                the weights of the last epoch only.
            callbacks: of the recipe, called before `score` and the standard ones.
            last_callbacks: of the recipe, called after them.
            epochs: of this call, for a training in phases; all of `config.epochs` by default.
            shard_by: how several workers share the batches, see `training.shard`.
            flops_rules: how to count the FLOPs of layers that `inspection` does not know.

        Raises:
            ValueError: an option is wrong, or the checkpoint does not fit the model.
        """
        if self._resume is None:
            self.restore(
                model,
                score=score,
                score_every=score_every,
                monitor=monitor,
                callbacks=callbacks,
                last_callbacks=last_callbacks,
            )
        cost = update_cost(
            model,
            rows=batches.num_rows / len(batches),
            length=batches.mean_lengths,
            other_lengths=batches.other_lengths,
            rules=flops_rules,
        )
        update_costs(self._callbacks, **cost._asdict())
        config: Any = self.config
        epochs = range(config.epochs) if epochs is None else epochs
        position = self.position
        first = max(epochs.start, position.epoch)
        done = (first - epochs.start) * len(batches)
        if first == position.epoch:
            done += position.batch
        arguments = {
            "x": shard(batches.dataset(skip=done), shard_by),
            "steps_per_epoch": len(batches),
            "validation_data": shard(validation.dataset()) if validation else None,
            "initial_epoch": first,
            "epochs": epochs.stop,
            "shuffle": False,  # the batches are shuffled already
            "callbacks": self._callbacks,
            "verbose": verbosity(),
        }
        self.is_prepared = True
        return arguments

    def load_best(self) -> dict[str, float]:
        """Gives the model the weights of its best epoch.

        Returns:
            The monitored figure there, `best`, and the epoch's number from 1, `best_epoch`.

        Raises:
            NoBestEpochError: the figure was NaN in all epochs, as a correlation is where the model
                gives every example the same answer.
        """
        monitor = str(self._monitor)
        found = {int(epoch["epoch"]): epoch[monitor] for epoch in self.epochs}
        numbers = [number for number, value in found.items() if not math.isnan(value)]
        if not numbers:
            raise NoBestEpochError(
                f"{monitor} was NaN in all of {len(found)} epochs, so none is the best: the "
                "model gives all examples the same answer, or the dev set has only one. Train "
                f"longer or at another learning rate; the last weights are in "
                f"{self.folder / LAST_WEIGHTS}"
            )
        best = max(numbers, key=lambda number: found[number])  # the first of equals
        load_weights(self._model, self.folder / BEST_WEIGHTS)
        return {"best": float(found[best]), "best_epoch": best}

    def load_last(self) -> None:
        """Gives the model the weights that it had at the end of the last epoch."""
        load_weights(self._model, self.folder / LAST_WEIGHTS)

    def keep_better(self, averaging: CheckpointAveraging, score: Callable[[str], float]) -> str:
        """Gives the model its last weights or their average, and writes `chosen.weights.h5`.

        Args:
            averaging: was a callback of the training.
            score: see `CheckpointAveraging.keep_better`.

        Returns:
            The name of the weights that stay: "last", or "average of 5".
        """
        chosen = averaging.keep_better(score)
        if is_chief():
            write_weights(self._model, self.folder / CHOSEN_WEIGHTS)
        return chosen

    def finish(
        self,
        pipeline: Any,
        figures: Mapping[str, Any],
        *,
        scores: Collection[str] = ("dev_", "test_"),
        examples: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        """Reports the figures, writes `metrics.json`, and exports the pipeline if asked to.

        Args:
            pipeline: with the weights that are the result of the run.
            figures: name -> number, string or list.
            scores: the export tells those figures whose names have one of these in them.
            examples: what the export is checked with, and stores; see `export`.

        Returns:
            The figures, with `epochs`, the logs of each, and `seconds` since the run started or
            was resumed.
        """
        metrics = {
            **figures,
            "epochs": self.epochs,
            "seconds": round(self.seconds),
        }
        if not is_chief():
            return metrics
        files.write_json(self.folder / METRICS, metrics)
        for name, value in metrics.items():
            if isinstance(value, float):
                print(f"{name}: {value:.4f}")
            elif not isinstance(value, list):
                print(f"{name}: {value}")
        print(f"written: {self.folder / METRICS}")
        if self.config.export:
            folder = export(
                pipeline,
                self.config.export,
                examples=examples,
                scores=_told(metrics, scores),
                weights_dtype=self.config.weights_dtype,
            )
            print(f"exported: {folder}")
        return metrics


def check_new_run(folder: Path) -> Path:
    """The folder of a new run, not yet created.

    Raises:
        FileExistsError: it exists and is not empty: a run is never overwritten.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists: give the run another --name, or remove the folder")
    return folder


def check_same(folder: Path, config: Any, *, may_differ: Collection[str] = ()) -> Path:
    """The folder of a run that was started with the same configuration.

    Args:
        folder: of the run.
        config: a dataclass.
        may_differ: its fields that do not matter.

    Raises:
        FileNotFoundError: no run was started there.
        ValueError: it was started with another configuration; the message lists the differences.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no run to resume; check --name, or leave --resume out")
    before = files.read_json(path)
    now = json.loads(json.dumps(dataclasses.asdict(config), default=str))  # as it was written
    differences = [
        f"{name} was {before.get(name)}, is {now.get(name)}"
        for name in sorted((before.keys() | now.keys()) - set(may_differ))
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise ValueError(
            f"{folder} was started with another configuration: {', '.join(differences)}; give the "
            "same options, or another --name"
        )
    return folder


def _told(metrics: Mapping[str, Any], parts: Collection[str]) -> dict[str, float]:
    """The finite numbers among the metrics whose names have one of `parts` in them."""
    return {
        name: value
        for name, value in metrics.items()
        if any(part in name for part in parts) and isinstance(value, float) and math.isfinite(value)
    }


def _begin_strategy(config: Options) -> None:
    """Joins the other workers, and sets the precision, before TensorFlow has work to do.

    From now on the process ends with status 75 if it is told to stop, or if another worker is gone;
    see `preemption`.
    """
    if config.accumulate < 1:
        raise ValueError(f"--accumulate {config.accumulate}: not 1 or more")
    if config.strategy == "multi_worker":
        clusters.join(config.workers, config.worker_index)
        preemption.leave_with_the_others()
    elif config.workers or config.worker_index is not None:
        raise ValueError(
            f"--workers and --worker-index are for --strategy multi_worker, not {config.strategy}"
        )
    elif (cluster := clusters.from_environment()) and len(cluster.workers) > 1:
        raise ValueError(
            f"{clusters.VARIABLE} names {len(cluster.workers)} workers, and each would train "
            f"alone under --strategy {config.strategy}: give --strategy multi_worker, or unset it"
        )
    create(config.strategy)
    # Not before: while TensorFlow waits for the other workers Python hears no signal.
    preemption.leave_on_termination()
    keras.config.set_dtype_policy(config.precision)
