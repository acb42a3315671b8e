"""What every recipe does around `model.fit`: a folder for the run, callbacks, figures, errors.

A run lives in `runs/<name>/`: `config.json`, `tensorboard/`, `best.weights.h5` of the best epoch
and `last.weights.h5` of the newest, `checkpoints/` to go on from, `metrics.json`. What it says
meanwhile, and where, is up to the options of `Logging`.
"""

import contextlib
import dataclasses
import importlib.util
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tyro

from keras_transformers.runs import guardrails
from keras_transformers.runs import strategies
from keras_transformers.runs.weights_files import SaveWeights
from keras_transformers.runs.guardrails import NonFiniteLossError, StopOnNonFiniteLoss
from keras_transformers.runs.progress import NoProgress, RichProgress
from keras_transformers.runs.resume.callback import Resumable, check_same
from keras_transformers.runs.resume.snapshots import CheckpointError
from keras_transformers.runs.telemetry import JsonLines, Telemetry, TensorBoard

BEST_WEIGHTS = "best.weights.h5"
LAST_WEIGHTS = "last.weights.h5"
METRICS = "metrics.json"
CONFIG = "config.json"
PROFILED_STEPS = (10, 14)  # behind those that compile and fill caches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Logging:
    """What a run tells while it trains; a recipe's configuration may begin with these options."""

    quiet: bool = False  # no progress on standard output, for batch jobs
    log_json: str | None = None  # also JSON, a line each: a file's name, or stdout
    log_every: int = 100  # steps between figures in TensorBoard and JSON
    profile: bool = False  # of steps 10 to 14, for TensorBoard
    peak_flops: float | None = None  # of one accelerator, a second: 312e12; gives the utilisation


# Options that change nothing in the weights: those of a run that goes on may differ.
MAY_DIFFER = (
    *("resume", "checkpoint_every", "export", "export_dtype"),
    *strategies.PLACE,
    *(field.name for field in dataclasses.fields(Logging)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(strategies.Scaling, Logging, Resumable):
    """A recipe's configuration begins with these options; they mean the same in all of them.

    folder = config.begin()
    ...  # reads the data, builds and compiles the model
    resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
    callbacks = [*runs.callbacks(folder, monitor="val_accuracy", log=config), resume]
    runs.start(folder, config)
    position = resume.restore(model, callbacks)
    model.fit(
        batches.repeat().skip(position.step), steps_per_epoch=len(batches),
        initial_epoch=position.epoch, epochs=config.epochs, callbacks=callbacks, ...
    )
    metrics = runs.load_best(model, folder, resume.epochs, "val_accuracy")
    """

    seed: int = 0  # of new weights, dropout and the order of the examples
    name: str = "run"  # the run's folder in runs_dir
    runs_dir: Path = Path("runs")

    def begin(self) -> Path:
        """Sets strategy, precision and seed, checks the run's place.

        Returns:
            The run's folder. If it is new it is not there yet: `start` creates it, when all options
            are known to be sound.

        Raises:
            FileExistsError: the run exists and does not resume.
            ValueError: it resumes with other options (the differences are said), one of `Scaling`
                is wrong, or there is no such device.
        """
        self.begin_strategy()
        folder = self.runs_dir / self.name
        if self.resume and (folder / CONFIG).is_file():
            check_same(folder, self, may_differ=MAY_DIFFER)
        elif strategies.is_chief():
            check_new(folder)
            if self.resume:  # one command for a scheduler, the first time and all others
                print(f"{folder}: no run that could go on, so it begins")
        keras.utils.set_random_seed(self.seed)
        return folder


class NoBestEpochError(ArithmeticError):
    """The figure that tells the best epoch was NaN in all of them."""


def command_line(main: Callable[[Any], Any], config_class: type) -> None:
    """Calls `main` with a configuration, a dataclass, made from the command line.

    What this package logs, counts above all, is printed. A loss that is NaN, a run without a best
    epoch, a batch for which there is no memory, or a disk without room ends the program with one
    line and status 1.
    """
    logger = logging.getLogger("keras_transformers")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Printer()]
    config: Any = tyro.cli(config_class)
    try:
        main(config)
        strategies.leave_together()
    except (NonFiniteLossError, NoBestEpochError, CheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    except Exception as error:
        if reason := guardrails.no_room(error):
            line = str(error).partition("\n")[0].rpartition("}} ")[2]  # behind the name of an op
            place = getattr(error, "filename", None) or line
            message = f"{place}: {reason}; make room, and give the same command with --resume"
        elif guardrails.is_out_of_memory(error):
            message = _memory_message(error, config)
        else:
            raise
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(1) from error


def _memory_message(error: Exception, config: Any) -> str:
    """What to try, in the options of this recipe."""
    by_tokens = hasattr(config, "batch_tokens")
    return guardrails.out_of_memory_message(
        error,
        batch_size=getattr(config, "batch_tokens" if by_tokens else "batch_size", None),
        unit="tokens" if by_tokens else "examples",
        option="--batch-tokens" if by_tokens else "--batch-size",
        accumulate=getattr(config, "accumulate", None),
    )


class _Printer(logging.Handler):
    """Prints to what is standard output at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), flush=True)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Ends the program with one line and status 2 where a ValueError or OSError would a traceback.

    For the part of a recipe that reads what the user gave. Outside of it an error is ours, and
    deserves its traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def check_installed(*packages: str, extra: str) -> None:
    """Sees at the beginning what would be missed after an epoch.

    Raises:
        ValueError: a package of the extra is not installed.
    """
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} not installed: pip install 'keras-transformers[{extra}]'"
        )


def check_new(folder: str | os.PathLike[str]) -> Path:
    """The folder of a new run, not yet created.

    Raises:
        FileExistsError: it exists and is not empty: a run is never overwritten.
    """
    path = Path(folder)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise FileExistsError(f"{path} exists: give the run another --name, or remove the folder")
    return path


def start(folder: Path, config: Any) -> None:
    """Creates the run's folder with the configuration, a dataclass, in `config.json`.

    Of several workers the chief's is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if strategies.is_chief():
        write_json(folder / CONFIG, dataclasses.asdict(config))


def callbacks(
    folder: Path,
    *,
    monitor: str,
    log: Logging | None = None,
    tokens_per_step: float | None = None,
    flops_per_step: float | None = None,
) -> list[keras.callbacks.Callback]:
    """What every `fit` takes: guards, figures, logs, progress, and weights on disk.

    They stop on a loss that is NaN; add gradient norm, learning rate and rates to the logs; write
    them for TensorBoard and as JSON; keep the newest weights, and those of the best epoch. Of
    several workers the chief alone writes and shows progress.

    Args:
        folder: the run's.
        monitor: the figure that tells the best epoch, the higher the better.
        log: what to tell; the defaults of `Logging` if None.
        tokens_per_step: real tokens of an update, of all replicas; gives tokens a second.
        flops_per_step: of such an update; with `log.peak_flops` it gives the utilisation. Both are
            those of `inspection.update_cost`.

    Raises:
        ValueError: `log_every` or `peak_flops` is not above 0.
    """
    log = log or Logging()
    telemetry = Telemetry(
        every=log.log_every,
        tokens_per_step=tokens_per_step,
        flops_per_step=flops_per_step,
        peak_flops=log.peak_flops,
    )
    saved = [
        SaveWeights(folder / LAST_WEIGHTS),
        SaveWeights(folder / BEST_WEIGHTS, monitor=monitor),
    ]
    facts = {
        "run": str(folder),
        "tokens_per_step": tokens_per_step,
        "flops_per_step": flops_per_step,
        "peak_flops": log.peak_flops,
    }
    told = _told(folder, log, facts) if strategies.is_chief() else [NoProgress()]
    return [StopOnNonFiniteLoss(folder / LAST_WEIGHTS), telemetry, *told, *saved]


def set_cost(
    callbacks: Sequence[keras.callbacks.Callback], *, tokens_per_step: float, flops_per_step: float
) -> None:
    """Tells `callbacks` that from the next `fit` on an update takes this much.

    For a training in phases of other lengths, each a `fit`; see `inspection.update_cost`.
    """
    for callback in callbacks:
        if isinstance(callback, Telemetry):
            callback.tokens_per_step = tokens_per_step
            callback.flops_per_step = flops_per_step
        elif isinstance(callback, JsonLines):
            callback.facts |= {"tokens_per_step": tokens_per_step, "flops_per_step": flops_per_step}


def _told(
    folder: Path, log: Logging, facts: Mapping[str, Any]
) -> Iterator[keras.callbacks.Callback]:
    """What writes the logs, and shows progress."""
    yield TensorBoard(
        str(folder / "tensorboard"),
        update_freq=log.log_every,
        profile_batch=PROFILED_STEPS if log.profile else 0,
    )
    if log.log_json:
        yield JsonLines(log.log_json, every=log.log_every, facts=facts)
    if log.quiet:
        yield NoProgress()
    elif sys.stdout.isatty():
        yield RichProgress()


def verbosity() -> int:
    """Keras' `verbose`: one line an epoch in a log; on a terminal `callbacks` brings the bar."""
    return 1 if sys.stdout.isatty() else 2


def load_best(
    model: keras.Model, folder: Path, epochs: Sequence[Mapping[str, float]], monitor: str
) -> dict[str, float]:
    """Gives the model the weights of the best epoch.

    Args:
        model: after training.
        folder: the run's.
        epochs: the figures of each, as `Resume.epochs` has them.
        monitor: the one that told `callbacks` which was the best.

    Returns:
        That figure, `best`, and the epoch's number from 1, `best_epoch`.

    Raises:
        NoBestEpochError: it was NaN in all epochs, as a correlation is where the model gives every
            example the same answer.
    """
    found = {int(epoch["epoch"]): epoch[monitor] for epoch in epochs}
    numbers = [number for number, value in found.items() if not math.isnan(value)]
    if not numbers:
        raise NoBestEpochError(
            f"{monitor} was NaN in all of {len(found)} epochs, so that none is the best: the "
            "model gives all examples the same answer, or the dev set has but one. Train longer or "
            f"at another learning rate; the last weights are in {folder / LAST_WEIGHTS}"
        )
    best = max(numbers, key=lambda number: found[number])  # of equals the first, as SaveWeights
    strategies.load_weights(model, folder / BEST_WEIGHTS)
    return {"best": float(found[best]), "best_epoch": best}


def scores(metrics: Mapping[str, Any], *parts: str) -> dict[str, float]:
    """What an export tells of how good its model is: the `scores` of `export.classifier` and such.

    Args:
        metrics: the run's figures.
        parts: the names of those that count have one of these in them; by default "dev_" and
            "test_". Only numbers that are finite are taken.
    """
    return {
        name: value
        for name, value in metrics.items()
        if any(part in name for part in parts or ("dev_", "test_"))
        and isinstance(value, float)
        and math.isfinite(value)
    }


def report(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Prints the figures, and writes them to `metrics.json`; of several workers the chief does."""
    if not strategies.is_chief():
        return
    write_json(folder / METRICS, metrics)
    for name, value in metrics.items():
        if isinstance(value, float):
            print(f"{name}: {value:.4f}")
        elif not isinstance(value, list):
            print(f"{name}: {value}")
    print(f"written: {folder / METRICS}")


def write_json(path: Path, value: Any) -> None:
    """Writes JSON beside `path` and renames it, so that no half-written file is ever seen."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(
            json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8"
        )
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
