"""Executes one run per learning rate and batch size of BERT's appendix A.3."""

import dataclasses
import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from keras_transformers import files
from keras_transformers.runs.fine_tuning import Tuning
from keras_transformers.runs.guardrails import NonFiniteLossError
from keras_transformers.runs.options import MAY_DIFFER
from keras_transformers.runs.resume.folder_lock import LOCK, lock_folder
from keras_transformers.runs.resume.run_folder import CONFIG, check_new_run, check_same
from keras_transformers.runs.run import METRICS, NoBestEpochError

# Devlin et al. 2019, appendix A.3.
LEARNING_RATES = (5e-5, 3e-5, 2e-5)
BATCH_SIZES = (16, 32)


def run_grid(execute: Callable[[Tuning], dict[str, Any]], config: Tuning) -> dict[str, Any]:
    """Executes a recipe for each point of the grid; returns what it writes to grid.json.

    Each run has its own folder in the grid's folder, such as `learning_rate_5e-05_batch_size_16`;
    `grid.json` beside them has all their figures. A stopped grid continues where it was, even in
    the middle of a run, without `--resume`.

    Args:
        execute: runs the recipe with a configuration and returns its metrics.
        config: a `Tuning` with `grid` set.
    """
    folder = config.runs_dir / config.name
    try:
        _check(config)
        files.check_writable(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _lock = lock_folder(folder)  # until this function returns
        names = [path.name for path in folder.glob("*") if path.name != LOCK]
        if names == [CONFIG]:  # left by a grid whose first run found no input
            (folder / CONFIG).unlink()
        if len(names) > 1:
            check_same(folder, config, may_differ=MAY_DIFFER)
        else:
            check_new_run(folder)
            files.write_json(folder / CONFIG, dataclasses.asdict(config))
    except (ValueError, OSError) as error:
        raise _refusal(error) from error
    metrics_by_point: dict[str, Any] = {}
    for learning_rate, batch_size in itertools.product(LEARNING_RATES, BATCH_SIZES):
        keras.utils.clear_session()
        point = dataclasses.replace(
            config,
            grid=False,
            learning_rate=learning_rate,
            batch_size=batch_size,
            runs_dir=folder,
            name=f"learning_rate_{learning_rate:g}_batch_size_{batch_size}",
        )
        metrics = folder / point.name / METRICS
        if metrics.is_file():
            metrics_by_point[point.name] = _figures(metrics)
            continue
        is_started = (metrics.parent / CONFIG).is_file()
        if not is_started:
            shutil.rmtree(metrics.parent, ignore_errors=True)
        try:
            metrics_by_point[point.name] = execute(dataclasses.replace(point, resume=is_started))
        except (NonFiniteLossError, NoBestEpochError) as error:
            print(f"{point.name}: {error}")
    scores = {name: figures["best"] for name, figures in metrics_by_point.items()}
    for name, score in scores.items():
        print(f"{name}: {score:.4f}")
    print(f"best: {max(scores, key=lambda name: scores[name])}" if scores else "no run succeeded")
    files.write_json(folder / "grid.json", metrics_by_point)
    return metrics_by_point


def _figures(metrics: Path) -> dict[str, Any]:
    """Returns the figures of a point that is done."""
    try:
        figures = files.read_json(metrics)
        if not isinstance(figures.get("best"), int | float):
            raise ValueError(f"{metrics}: has no number 'best'; remove the file to run it again")
    except (ValueError, OSError) as error:
        raise _refusal(error) from error
    return figures


def _refusal(error: Exception) -> SystemExit:
    print(f"error: {files.one_line(error)}", file=sys.stderr)
    return SystemExit(2)


def _check(config: Tuning) -> None:
    config.check()
    for name in ("export", "save"):
        if getattr(config, name):
            raise ValueError(f"--{name} with --grid: {name} the one you choose by its own command")
    if config.strategy == "multi_worker":
        raise ValueError("--grid with --strategy multi_worker: run one command per point")
