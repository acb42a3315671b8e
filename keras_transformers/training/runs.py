"""What every recipe does around `model.fit`: a folder for the run, callbacks, figures, errors.

A run lives in `runs/<name>/`: `config.json`, `tensorboard/`, `best.weights.h5` of the best epoch
and `last.weights.h5` of the newest, `metrics.json`.
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

from keras_transformers.training.checkpoints import SaveWeights
from keras_transformers.training.guardrails import NonFiniteLossError, StopOnNonFiniteLoss

BEST_WEIGHTS = "best.weights.h5"
LAST_WEIGHTS = "last.weights.h5"
METRICS = "metrics.json"


def command_line(main: Callable[[Any], Any], config_class: type) -> None:
    """Calls `main` with a configuration, a dataclass, made from the command line.

    What this package logs, counts above all, is printed. A loss that is NaN ends the program with
    one line and status 1.
    """
    logger = logging.getLogger("keras_transformers")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Printer()]
    config: Any = tyro.cli(config_class)
    try:
        main(config)
    except NonFiniteLossError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error


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
    """Creates the run's folder with the configuration, a dataclass, in `config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", dataclasses.asdict(config))


def callbacks(folder: Path, *, monitor: str) -> list[keras.callbacks.Callback]:
    """Stops on a loss that is NaN; TensorBoard; the newest weights, and those of the best epoch.

    Args:
        folder: the run's.
        monitor: the figure that tells the best epoch, the higher the better.
    """
    return [
        StopOnNonFiniteLoss(folder / LAST_WEIGHTS),
        keras.callbacks.TensorBoard(str(folder / "tensorboard")),
        SaveWeights(folder / LAST_WEIGHTS),
        SaveWeights(folder / BEST_WEIGHTS, monitor=monitor),
    ]


def verbosity() -> int:
    """Keras' `verbose`: a progress bar on a terminal, one line an epoch in a log."""
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
    """Prints the figures, and writes them to `metrics.json`."""
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
