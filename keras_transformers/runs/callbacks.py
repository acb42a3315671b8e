"""Creates the callbacks of every `fit`: guards, figures, logs, progress, and weights on disk."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.data.batching import Batches
from keras_transformers.inspection.flops import update_cost, update_tokens
from keras_transformers.runs.board.attempts import Attempts
from keras_transformers.runs.board.epochs import EpochSummaries
from keras_transformers.runs.guardrails import StopOnNonFiniteLoss
from keras_transformers.runs.monitors import Mode
from keras_transformers.runs.options import Logging, Options
from keras_transformers.runs.progress import (
    LineProgress,
    NoProgress,
    NotebookProgress,
    RichProgress,
    in_notebook,
)
from keras_transformers.runs.telemetry import JsonLines, Telemetry, TensorBoard
from keras_transformers.runs.weights_files import SaveWeights
from keras_transformers.runs.workers import is_chief
from keras_transformers.tasks.pipeline import Pipeline

_PROFILED_STEPS = (10, 14)  # past those that compile and fill caches


def standard_callbacks(
    folder: Path,
    log: Logging,
    *,
    last: str,
    best: str,
    monitor: str | None,
    mode: Mode = "max",
    patience: int | None = None,
) -> list[keras.callbacks.Callback]:
    """Returns the callbacks to pass to every `fit`.

    They stop training when the loss is NaN, add gradient norm, learning rate and speed to the logs,
    write the logs for TensorBoard and as JSON, and save the newest and the best weights. Among
    several workers, only the chief writes files and shows progress.

    Args:
        folder: the run's folder.
        log: the options that say what to report.
        last: file name of the newest weights.
        best: file name of the best epoch's weights.
        monitor: the figure that decides the best epoch; None saves no best.
        mode: whether the highest ("max") or the lowest ("min") figure is the best.
        patience: epochs without a better one after which training stops; None for no limit.

    Raises:
        ValueError: `log_every` or `peak_flops` is not above 0.
    """
    telemetry = Telemetry(every=log.log_every, peak_flops=log.peak_flops)
    saved = [SaveWeights(folder / last)]
    if monitor is not None:
        saved.append(SaveWeights(folder / best, monitor=monitor, mode=mode))
    stops = []
    if monitor is not None and patience is not None:
        # With a first baseline, NaN is never the best, as in `SaveWeights`.
        worst = -math.inf if mode == "max" else math.inf
        stops = [
            keras.callbacks.EarlyStopping(monitor, mode=mode, patience=patience, baseline=worst)
        ]
    facts = {"run": str(folder), "peak_flops": log.peak_flops}
    reports = _reports(folder, log, facts) if is_chief() else [NoProgress()]
    return [StopOnNonFiniteLoss(folder / last), telemetry, *reports, *saved, *stops]


def costs_of_updates(
    model: keras.Model,
    batches: Batches,
    options: Options,
    attempts: Attempts,
    flops_rules: Mapping[type, Any] | None = None,
) -> dict[str, Any]:
    """Returns the arguments of `update_costs`: no FLOPs if nothing shows them, or if they fail."""
    rows, length = batches.num_rows / len(batches), batches.mean_lengths

    def flops() -> float:
        cost = update_cost(
            model, rows=rows, length=length, other_lengths=batches.other_lengths, rules=flops_rules
        )
        return cost.flops_per_step * (2 if options.r_drop else 1)

    return {
        "tokens_per_step": update_tokens(rows, length),
        "flops_per_step": attempts.at(
            "the FLOPs of its updates",
            flops,
            remedy="Pass flops_rules={TheLayer: a function that counts them} to Run.prepare",
        )
        if options.peak_flops or options.log_json
        else None,
    }


def update_costs(
    callbacks: Sequence[keras.callbacks.Callback],
    *,
    tokens_per_step: float,
    flops_per_step: float | None,
) -> None:
    """Sets the cost of an update, so the next `fit` also logs tokens per second and utilisation.

    Args:
        callbacks: what `standard_callbacks` returned.
        tokens_per_step: real tokens per update, over all replicas; see `inspection.update_cost`.
        flops_per_step: FLOPs per update, for the utilisation if `peak_flops` is known; None if they
            are not counted.
    """
    facts = {"tokens_per_step": tokens_per_step}
    if flops_per_step is not None:
        facts["flops_per_step"] = flops_per_step
    for callback in callbacks:
        if isinstance(callback, Telemetry):
            callback.tokens_per_step = tokens_per_step
            callback.flops_per_step = flops_per_step
        elif isinstance(callback, JsonLines):
            callback.facts |= facts


def show_samples(
    callbacks: Sequence[keras.callbacks.Callback], source: Batches | Pipeline | None
) -> None:
    """Sets the source of the examples that TensorBoard shows with their answers in the next `fit`.

    Args:
        callbacks: what `standard_callbacks` returned.
        source: batches that know their pipeline, or a pipeline, which has its own examples.
    """
    for callback in callbacks:
        if isinstance(callback, EpochSummaries):
            callback.source = source


def _reports(
    folder: Path, log: Logging, facts: Mapping[str, Any]
) -> Iterator[keras.callbacks.Callback]:
    """Yields the callbacks that write logs and show progress."""
    yield TensorBoard(
        str(folder / "tensorboard"),
        update_freq=log.log_every,
        profile_batch=_PROFILED_STEPS if log.profile else 0,
    )
    yield EpochSummaries(folder / "tensorboard" / "epochs", log)
    if log.log_json:
        yield JsonLines(log.log_json, every=log.log_every, facts=facts)
    if log.quiet:
        yield NoProgress()
    elif in_notebook():
        yield NotebookProgress()
    else:
        yield RichProgress() if sys.stdout.isatty() else LineProgress()


def verbosity() -> int:
    """Returns Keras' `verbose`: one line per epoch in a log; elsewhere callbacks draw a bar."""
    return 1 if sys.stdout.isatty() or in_notebook() else 2
