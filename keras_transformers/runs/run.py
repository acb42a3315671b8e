"""Runs a training: everything around `model.fit` in every recipe, and the folder of its files.

The folder `runs/<name>/` holds `config.json`, `tensorboard/`, `best.weights.h5` from the best
epoch, `last.weights.h5` from the newest, `checkpoints/` to resume from, and `metrics.json`.
"""

import contextlib
import logging
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers import files
from keras_transformers.data.batching import Batches
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.runs.board.attempts import Attempts
from keras_transformers.runs.board.final import hyper_parameters, write_final
from keras_transformers.runs.callbacks import (
    costs_of_updates,
    show_samples,
    standard_callbacks,
    update_costs,
    verbosity,
)
from keras_transformers.runs.class_counts import report_classes
from keras_transformers.runs.monitors import (
    BestEpoch,
    Mode,
    best_of,
    check_monitor,
    figures_of_epochs,
    mode_of,
    monitors_of,
)
from keras_transformers.runs.options import MAY_DIFFER, Options
from keras_transformers.runs.origin import origin
from keras_transformers.runs.resume import run_folder
from keras_transformers.runs.resume.callback import Position, Resume
from keras_transformers.runs.resume.folder_lock import LOCK, FolderLock, lock_folder
from keras_transformers.runs.resume.snapshots import check_not_gone
from keras_transformers.runs.tracking.mlflow import MLflow
from keras_transformers.runs.tracking.tracker import Results, TrackedRun, Tracker
from keras_transformers.runs.user_callbacks import as_callbacks, check_callbacks
from keras_transformers.runs.validation import Validation
from keras_transformers.runs.weights_files import check_weights, write_weights
from keras_transformers.runs.workers import begin_strategy, is_chief, load_weights
from keras_transformers.saved_model.exporting import export
from keras_transformers.saved_model.versions import split_target
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.training import distributed
from keras_transformers.training.averaging import AverageLastWeights
from keras_transformers.training.losses import divide_by_weights
from keras_transformers.training.memory import keep_freed_memory
from keras_transformers.training.strategies import Shard, create, shard

__all__ = ["NoBestEpochError", "Run"]

BEST_WEIGHTS = "best.weights.h5"
LAST_WEIGHTS = "last.weights.h5"
CHOSEN_WEIGHTS = "chosen.weights.h5"
METRICS = "metrics.json"
CHECKPOINTS = "checkpoints"

logger = logging.getLogger(__name__)


class NoBestEpochError(ArithmeticError):
    """The figure that decides which epoch is best was NaN in every epoch."""


class Run:
    """Manages one training, from its options to its files.

        with run.scope():
            model = ...
            model.compile(...)
        model.fit(**run.prepare(model, batches, validation=dev, monitor="val_accuracy"))
        run.load_best()
        run.finish(pipeline, {"dev_accuracy": ...})

    The constructor joins the other workers and sets the strategy, precision and seed, so create the
    run before TensorFlow does any work.

    Args:
        config: the recipe's options.

    Attributes:
        config: the recipe's options.
        folder: the run's folder; `make_folder` creates it.
        is_prepared: whether `prepare` was called: earlier errors are the user's.

    Raises:
        FileExistsError: the run exists and `resume` is not set, or the export or the folder of
            `save` exists.
        FileNotFoundError: the resumed run has results, but its checkpoints are gone.
        FolderInUseError: another process is running it.
        OSError: the run's folder, the export or the log cannot be written.
        ValueError: a resumed run has different options (the message lists them), an option is
            wrong, or the strategy's device is missing.
    """

    def __init__(self, config: Options) -> None:
        config.check()
        self.config = config
        self.folder = config.runs_dir / config.name
        self.is_prepared = False
        self._started = time.monotonic()
        self._model: Any = None
        self._monitor: str | None = None
        self._mode: Mode = "max"
        self._lock: FolderLock | None = None
        self._is_new = False
        self._resume: Resume | None = None
        self._batches: list[Batches] = []
        self._attempts = Attempts()
        self._callbacks: list[keras.callbacks.Callback] = []
        self._trackers: list[Tracker] = []
        keep_freed_memory()
        begin_strategy(config)
        if config.resume and (self.folder / run_folder.CONFIG).is_file():
            run_folder.check_same(self.folder, config, may_differ=MAY_DIFFER, may_grow=("epochs",))
            if is_chief():
                self._lock = lock_folder(self.folder)
                check_not_gone(
                    self.folder / CHECKPOINTS,
                    figures=self.folder / METRICS,
                    weights=[self.folder / BEST_WEIGHTS, self.folder / LAST_WEIGHTS],
                )
        elif is_chief():
            run_folder.check_new_run(self.folder)
            if config.resume:  # a scheduler runs the same command every time
                print(f"{self.folder}: nothing to resume, so the run starts")
        if is_chief():
            _check_places(config, self.folder)
        keras.utils.set_random_seed(config.seed)

    @property
    def epochs(self) -> list[dict[str, float]]:
        """The logs of every epoch so far; `epoch` is its number, from 1."""
        return self._resume.epochs if self._resume else []

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds; see `Resume.seconds`."""
        return self._resume.seconds if self._resume else time.monotonic() - self._started

    @property
    def position(self) -> Position:
        """How far the training has got; a resumed run does not start at zero."""
        return self._resume.position if self._resume else Position()

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the scope in which to build and compile the model."""
        if self.config.strategy == "default":
            return contextlib.nullcontext()
        return create(self.config.strategy).scope()

    def make_folder(self) -> Path:
        """Creates the run's folder, writes the configuration there, and returns the folder.

        `prepare` does this too; call it only to put files there earlier, and only after checking
        all options.

        Raises:
            FileExistsError: another process has begun this run in the meantime.
            FolderInUseError: that process is still running it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if is_chief():
            if self._lock is None:
                self._lock = lock_folder(self.folder)
                run_folder.check_new_run(self.folder)
                self._is_new = True
            run_folder.write_config(self.folder, self.config)
        return self.folder

    def abandon(self) -> None:
        """Removes the folder if this run made it and wrote only its configuration there."""
        ours = {run_folder.CONFIG, LOCK}
        if self._is_new and {path.name for path in self.folder.iterdir()} <= ours:
            shutil.rmtree(self.folder)

    def prepare(
        self,
        model: keras.Model,
        batches: Batches,
        *,
        validation: Batches | None = None,
        samples: Batches | Pipeline | None = None,
        score: Callable[[], Mapping[str, float]] | None = None,
        score_every: int = 1,
        monitor: str | None = None,
        mode: Mode | None = None,
        callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = (),
        user_callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = (),
        last_callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = (),
        epochs: range | None = None,
        shard_by: Shard = "element",
        flops_rules: Mapping[type, Any] | None = None,
    ) -> dict[str, Any]:
        """Prepares everything for `model.fit`, and returns its arguments.

        Creates the run's folder and locks it; makes the model's steps correct under the strategy
        (see `training.distributed`); restores weights, optimizer, random numbers and metrics of a
        stopped run, bit for bit; and computes the cost of an update, for the logs. `fit` then skips
        the batches that are done.

        A training in phases calls this once per phase. The callbacks, with `score` and `monitor`,
        are those of the first call.

        Args:
            model: built and compiled in `scope`.
            batches: the batches to train on.
            validation: batches that Keras evaluates after each epoch.
            samples: batches or a pipeline whose first examples TensorBoard shows with their answers
                after each epoch; a pipeline has its own examples. Defaults to `validation`.
            score: a function that returns more figures after each epoch; the logs prefix them with
                "val_".
            score_every: epochs between calls of `score`. In between its last figures are repeated;
                before the first call `monitor` is 0, or infinite if the lowest is best.
            monitor: the figure that decides which epoch is best, unless the option `monitor` names
                another. None keeps only the weights of the last epoch.
            mode: whether the highest ("max") or the lowest ("min") figure is the best. None takes
                the lowest of losses, errors and perplexities, and the highest of others.
            callbacks: the recipe's callbacks, or one, called before `score` and the standard ones.
            user_callbacks: those of a user, or one, called after an epoch's figures are measured.
                Among these is `best_epoch`, the number of the best epoch so far, from 1.
            last_callbacks: the recipe's callbacks, or one, called after the standard ones.
            epochs: the epochs of this phase; all of `config.epochs` by default.
            shard_by: how several workers share the batches; see `training.shard`.
            flops_rules: how to count the FLOPs of layers that `inspection` does not know; see
                `inspection.flops_table`. If a rule is missing, the run warns once and reports no
                FLOPs.

        Returns:
            The arguments: the remaining batches, the callbacks, and where to start.

        Raises:
            FileExistsError, FolderInUseError: see `make_folder`.
            TypeError: something among the callbacks is none.
            ValueError: an option is wrong, the checkpoint does not fit the model, a figure to
                follow does not exist or needs validation data, or a callback disagrees with what
                the run does: it restores the weights of another epoch than `monitor`'s best, or a
                state of its own, or sets a rate that a schedule decides.
            WeightsFileError: the weights of the best epoch so far are missing or damaged.
        """
        self._batches = [batches, validation] if validation else [batches]
        if self._resume is None:
            before, after = as_callbacks(callbacks), as_callbacks(last_callbacks)
            users = as_callbacks(user_callbacks)
            if self.config.mlflow:
                users.append(MLflow(run_name=self.config.name))
            if batches.has_weights:
                divide_by_weights(model)
            distributed.prepare(
                model,
                **self.config.pick("accumulate", "recompute", "r_drop"),
                static_shapes=self.config.static_shapes is not None,
            )
            measured = [x.score for x in (*before, *users, *after) if isinstance(x, Validation)]
            measured += [score] if score else []
            monitor = self._check_monitors(
                model, batches, validation, measured, [*before, *users, *after], monitor
            )
            if mode is None:
                mode = "max" if monitor is None else mode_of(monitor, model)
            written = (BEST_WEIGHTS, LAST_WEIGHTS, CHOSEN_WEIGHTS)
            check_callbacks(
                [*before, *users, *after],
                model,
                monitor=monitor,
                mode=mode,
                weights=[self.folder / name for name in written],
            )
            validations = []
            if score:
                unknown = 0.0 if mode == "max" else math.inf
                validations = [
                    Validation(score, every=score_every, monitor=monitor, until_measured=unknown)
                ]
            self._begin(model, monitor, mode, [*before, *validations], users, after)
            if is_chief() and batches.class_counts:
                report_classes(batches.class_counts, quiet=self.config.quiet)
        costs = costs_of_updates(model, batches, self.config, self._attempts, flops_rules)
        update_costs(self._callbacks, **costs)
        show_samples(self._callbacks, samples or validation)
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

    def _check_monitors(
        self,
        model: keras.Model,
        batches: Batches,
        validation: Batches | None,
        scores: Sequence[Callable[[], Mapping[str, float]]],
        callbacks: Sequence[keras.callbacks.Callback],
        monitor: str | None,
    ) -> str | None:
        """Returns the figure that decides which epoch is best.

        Raises:
            ValueError: it, or one that a callback follows, is not a figure of this training.
        """
        config = self.config
        for option in ("monitor", "patience"):
            value = getattr(config, option)
            if value is not None and validation is None and not scores:
                raise ValueError(
                    f"{option}={value!r} needs figures of validation data: pass some, or leave "
                    f"{option} out"
                )
        followed = monitors_of(callbacks)
        if config.monitor is not None:
            followed[config.monitor] = f"monitor={config.monitor!r}"
        followed.pop(monitor or "", None)  # the task's own
        if followed:
            figures = figures_of_epochs(model, batches, validation, scores)
            figures += [monitor] if monitor else []
            for name, place in followed.items():
                check_monitor(place, name, figures)
        return config.monitor or monitor

    def _begin(
        self,
        model: keras.Model,
        monitor: str | None,
        mode: Mode,
        measuring: Sequence[keras.callbacks.Callback],
        user_callbacks: Sequence[keras.callbacks.Callback],
        last_callbacks: Sequence[keras.callbacks.Callback],
    ) -> None:
        """Makes the folder and the callbacks; restores a stopped run."""
        config = self.config
        self._model, self._monitor, self._mode = model, monitor, mode
        self._resume = Resume(
            self.folder / CHECKPOINTS,
            every=config.checkpoint_every,
            minutes=config.checkpoint_minutes,
            started=self._started,
        )
        trackers = [x for x in user_callbacks if isinstance(x, Tracker)]
        best = [] if monitor is None else [BestEpoch(monitor, mode, lambda: self.epochs)]
        self._callbacks = [
            *measuring,
            *best,
            *(x for x in user_callbacks if x not in trackers),
            *standard_callbacks(
                self.folder,
                config,
                last=LAST_WEIGHTS,
                best=BEST_WEIGHTS,
                monitor=monitor,
                mode=mode,
                patience=config.patience,
            ),
            *last_callbacks,
            *trackers,
            self._resume,
        ]
        self.make_folder()
        position = self._resume.restore(model, self._callbacks)
        if is_chief() and self._best_epoch() is not None:
            check_weights(self.folder / BEST_WEIGHTS)  # later epochs are not better
        if config.resume and position.step == 0:
            logger.warning("%s: no checkpoint, so the training starts again", self.folder)
        if is_chief():
            self._trackers = trackers
        for tracker in self._trackers:
            tracker.start(
                TrackedRun(
                    folder=self.folder,
                    options=hyper_parameters(config),
                    origin=origin(model, seed=config.seed),
                    epochs=lambda: self.epochs,
                )
            )

    def damage(self) -> str | None:
        """Returns the damaged file of the training's data; see `Batches.damage`."""
        return next((path for batches in self._batches if (path := batches.damage())), None)

    def load_best(self) -> dict[str, float]:
        """Loads the weights of the best epoch into the model.

        Returns:
            `best`, the monitored figure in that epoch, and `best_epoch`, its number from 1.

        Raises:
            NoBestEpochError: the figure was NaN in all epochs, as a correlation is if the model
                answers every example the same.
            WeightsFileError: the weights are missing or damaged.
        """
        best = self._best_epoch()
        if best is None:
            raise NoBestEpochError(
                f"{self._monitor} was NaN in all of {len(self.epochs)} epochs, so no epoch is "
                "best: the model answers all examples the same, or the dev set has only one "
                "answer. Train longer or change the learning rate; the last weights are in "
                f"{self.folder / LAST_WEIGHTS}"
            )
        load_weights(self._model, self.folder / BEST_WEIGHTS)
        return {"best": float(best[str(self._monitor)]), "best_epoch": int(best["epoch"])}

    @property
    def best_figures(self) -> dict[str, float]:
        """The figures of the best epoch by name, such as `val_accuracy`; {} if none is best."""
        return self._best_epoch() or {}

    def _best_epoch(self) -> dict[str, float] | None:
        """Returns the logs of the epoch with the best monitored figure, the first of equals."""
        return best_of(self.epochs, str(self._monitor), self._mode)

    def load_last(self) -> None:
        """Loads the weights from the end of the last epoch into the model."""
        load_weights(self._model, self.folder / LAST_WEIGHTS)

    def keep_better(self, averaging: AverageLastWeights, score: Callable[[str], float]) -> str:
        """Chooses the last weights or their average for the model, and writes `chosen.weights.h5`.

        Args:
            averaging: a callback of the training.
            score: see `AverageLastWeights.keep_better`.

        Returns:
            The name of the weights that were kept: "last", or "average of 5".
        """
        name = averaging.keep_better(score)
        if is_chief():
            write_weights(self._model, self.folder / CHOSEN_WEIGHTS)
        return name

    def track(
        self,
        pipeline: Pipeline,
        figures: Mapping[str, Any] | None = None,
        *,
        reports: Callable[[], Mapping[str, Report | None]],
    ) -> None:
        """Gives what the training ended with to the callbacks that track it, if there are any.

        `finish` does this too.

        Args:
            pipeline: the pipeline, with the run's final weights.
            figures: name -> number, string or list; the best epoch's is added.
            reports: makes the reports: part of the data -> report, or None if it has none.
        """
        if not self._trackers:
            return
        best = self._best_epoch()
        of_best = {} if best is None else {f"best_{self._monitor}": best[str(self._monitor)]}
        parts = self._attempts.at("reports on its results", reports) or {}
        results = Results(
            pipeline=pipeline,
            figures={**of_best, **(figures or {})},
            reports={part: report for part, report in parts.items() if report is not None},
        )
        for tracker in self._trackers:
            tracker.finish(results)

    @contextlib.contextmanager
    def tracked(self) -> Iterator[None]:
        """Tells the callbacks that track the run, at the end of the block, how it ended."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            for tracker in self._trackers:
                tracker.close(error)

    def finish(
        self,
        pipeline: Pipeline,
        figures: Mapping[str, Any],
        *,
        scores: Collection[str] = ("dev_", "test_"),
        examples: Sequence[Any] | None = None,
        reports: Mapping[str, Report] | None = None,
    ) -> dict[str, Any]:
        """Prints the figures, writes `metrics.json`; exports and saves the pipeline if requested.

        TensorBoard gets the options beside the figures, the reports, and the embeddings if
        requested.

        Args:
            pipeline: the pipeline, with the run's final weights.
            figures: name -> number, string or list.
            scores: the export records the figures whose names contain one of these.
            examples: inputs to check the export with, and to store in it; see `export`.
            reports: part of the data -> report, written beside `metrics.json` as
                `report_<part>.json`, `.txt` and pictures.

        Returns:
            The figures, plus `epochs`, the logs of each epoch, `seconds`, and `origin`: the
            command, the commit, the exact parameter count, the seed and the machine.
        """
        metrics = {
            **figures,
            "epochs": self.epochs,
            "seconds": round(self.seconds),
            "origin": origin(self._model, seed=self.config.seed),
        }
        if not is_chief():
            return metrics
        reports = reports or {}
        for part, report in reports.items():
            report.save(self.folder, name=f"report_{part}")
        files.write_json(self.folder / METRICS, metrics)
        write_final(
            self.folder / "tensorboard" / "final",
            self.config,
            figures,
            pipeline,
            num_embeddings=self.config.tensorboard_embeddings,
            reports=reports,
            attempts=self._attempts,
        )
        self.track(pipeline, figures, reports=lambda: reports or {})
        for name, value in metrics.items():
            if isinstance(value, float):
                print(f"{name}: {value:.4f}")
            elif not isinstance(value, list | dict):
                print(f"{name}: {value}")
        for part, report in reports.items():
            print(f"report on {part}: {self.folder / f'report_{part}.txt'}")
            print("".join(f"  {finding}\n" for finding in report.findings), end="")
        print(f"written: {self.folder / METRICS}")
        if self.config.export:
            folder = export(
                pipeline,
                self.config.export,
                examples=examples,
                scores=_figures_of(metrics, scores),
                weights_dtype=self.config.weights_dtype,
                ops=self.config.ops,
            )
            print(f"exported: {folder}")
        if self.config.save:
            print(f"saved: {pipeline.save(self.config.save)}")
        return metrics


def _check_places(config: Options, folder: Path) -> None:
    """Checks at the start that the results can be written at the end."""
    files.check_writable(folder)
    if config.export:
        base, _ = split_target(config.export)
        files.check_writable(base)
    if config.save:
        if config.save.exists():
            raise FileExistsError(f"--save {config.save} exists: remove it, or use another folder")
        files.check_writable(config.save)
    if config.log_json and config.log_json != "stdout":
        files.check_writable(Path(config.log_json).parent)


def _figures_of(metrics: Mapping[str, Any], parts: Collection[str]) -> dict[str, float]:
    """Returns the finite numbers among the metrics whose names contain one of `parts`."""
    return {
        name: value
        for name, value in metrics.items()
        if any(part in name for part in parts) and isinstance(value, float) and math.isfinite(value)
    }
