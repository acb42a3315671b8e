"""Defines what a run tells the software that tracks it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.evaluation.reports.report import Report
from keras_transformers.tasks.pipeline import Pipeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run that begins or goes on.

    Attributes:
        folder: the run's folder, where a tracker may keep a file to go on from.
        options: the options that may change the scores: name -> bool, number or string.
        origin: the command, the commit, the machine; see `runs.origin`.
        epochs: returns the logs of all epochs so far, also those before a restart.
    """

    folder: Path
    options: Mapping[str, bool | int | float | str]
    origin: Mapping[str, Any]
    epochs: Callable[[], Sequence[Mapping[str, float]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """What a training ends with.

    Attributes:
        pipeline: with the weights that are kept.
        figures: name -> number, string or list.
        reports: part of the data -> report.
    """

    pipeline: Pipeline
    figures: Mapping[str, Any]
    reports: Mapping[str, Report]


class Tracker(keras.callbacks.Callback):
    """Logs a run to other software. A run calls it last in each epoch, and only on the chief.

    What goes wrong there must not stop the training: these methods raise nothing.
    """

    def start(self, run: TrackedRun) -> None:
        """Begins to log a run, or goes on if it was logged before."""

    def finish(self, results: Results) -> None:
        """Logs what the training ended with."""

    def close(self, error: BaseException | None) -> None:
        """Says that the run has ended: None if it is complete, else what stopped it."""
