"""What every recipe does around `model.fit`: a folder for the run, callbacks, figures, errors.

A run lives in `runs/<name>/`: `config.json`, `tensorboard/`, `best.weights.h5` of the best epoch
and `last.weights.h5` of the newest, `metrics.json`. What it says meanwhile, and where, is up to
the options of `Logging`.
"""

import contextlib
import dataclasses
import importlib.util
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tyro

from keras_transformers.training import guardrails, strategies
from keras_transformers.training.checkpoints import SaveWeights
from keras_transformers.training.guardrails import NonFiniteLossError, StopOnNonFiniteLoss
from keras_transformers.training.progress import NoProgress, RichProgress
from keras_transformers.training.snapshots import CheckpointError
from keras_transformers.training.telemetry import JsonLines, Telemetry

BEST_WEIGHTS = "best.weights.h5"
LAST_WEIGHTS = "last.weights.h5"
METRICS = "metrics.json"
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


def command_line(main: Callable[[Any], Any], config_class: type) -> None:
    """Calls `main` with a configuration, a dataclass, made from the command line.

    What this package logs, counts above all, is printed. A loss that is NaN, a batch for which
    there is no memory, or a disk without room ends the program with one line and status 1.
    """
    logger = logging.getLogger("keras_transformers")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Printer()]
    config: Any = tyro.cli(config_class)
    try:
        main(config)
    except (NonFiniteLossError, CheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    except Exception as error:
        if not guardrails.is_out_of_memory(error):
            raise
        print(f"error: {_memory_message(error, config)}", file=sys.stderr)
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
        write_json(folder / "config.json", dataclasses.asdict(config))


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
        flops_per_step: of such an update, `inspection.training_flops`; with `log.peak_flops` it
            gives the utilisation.

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


def _told(
    folder: Path, log: Logging, facts: Mapping[str, Any]
) -> Iterator[keras.callbacks.Callback]:
    """What writes the logs, and shows progress."""
    yield keras.callbacks.TensorBoard(
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


def epochs(history: Mapping[str, list[float]]) -> list[dict[str, float]]:
    """Keras' history, a list a figure, as one dict an epoch."""
    rows = zip(*history.values(), strict=True)
    return [
        {"epoch": number} | {name: float(v) for name, v in zip(history, row, strict=True)}
        for number, row in enumerate(rows, start=1)
    ]


def best_epoch(history: Mapping[str, list[float]], monitor: str) -> dict[str, float]:
    """The figure that told the best epoch, `best`, and that epoch's number from 1, `best_epoch`."""
    values = [-math.inf if math.isnan(value) else value for value in history[monitor]]
    best = max(values)
    return {"best": float(best), "best_epoch": values.index(best) + 1}


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
