"""How far a training is, on a terminal: with the time that is left for all of its epochs."""

import atexit
from collections.abc import Mapping
from time import monotonic
from typing import Any

import keras
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

_SECONDS_BETWEEN_DRAWINGS = 0.1


class NoProgress(keras.callbacks.ProgbarLogger):
    """Takes the place of the progress bar that `fit` would add, and shows nothing."""

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Remembers what `fit` is about to do: `epochs` and `steps`, None where not known."""
        self.params = params

    def on_train_begin(self, logs: Any = None) -> None:
        """Nothing."""

    def on_test_begin(self, logs: Any = None) -> None:
        """Nothing."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Nothing."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Nothing."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Nothing."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Nothing."""

    def on_test_end(self, logs: Any = None) -> None:
        """Nothing."""


class RichProgress(NoProgress):
    """A bar over all epochs with the time left, and above it a line for each epoch that is done.

    The time left is that of the steps to come at the pace so far, validation and checkpoints
    included. Where the number of steps is not known it is shown from the second epoch on. The bar
    is drawn at most ten times a second, between batches: no thread is started.

    Args:
        console: where to draw; rich's own, standard output, by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[figures]}"),
            console=console,
            auto_refresh=False,
        )

    def on_train_begin(self, logs: Any = None) -> None:
        """Draws the empty bar, and sees to it that the terminal is given back in any case."""
        self._task = self._progress.add_task("", total=None, left="", figures="")
        self._first_epoch: int | None = None
        self._first_batch: int | None = None
        self._epoch = self._in_epoch = 0  # of a run that is done already no epoch begins
        self._steps = self.params.get("steps")
        self._started = self._drawn = monotonic()
        self._progress.start()
        atexit.register(self._progress.stop)  # an error in `fit` calls no callback

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Names the epoch; the first may not be the training's first, where it was resumed."""
        if self._first_epoch is None:
            self._first_epoch = epoch
        self._epoch = epoch
        self._in_epoch = 0
        self._draw(None)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sees where the work begins: an epoch that was interrupted goes on with a later batch."""
        if self._first_batch is None:
            self._first_batch = batch

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Moves the bar."""
        self._in_epoch = batch + 1
        if monotonic() - self._drawn >= _SECONDS_BETWEEN_DRAWINGS:
            self._draw(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's figures above the bar."""
        self._steps = self._steps or self._in_epoch
        self._progress.console.print(f"epoch {epoch + 1}: {_text(logs)}", highlight=False)
        self._draw(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Leaves the full bar, or as far as it came."""
        self._draw(logs)
        self._progress.stop()
        atexit.unregister(self._progress.stop)

    def _draw(self, logs: Mapping[str, Any] | None) -> None:
        self._drawn = monotonic()
        epochs, steps = self.params["epochs"], self._steps
        done = self._epoch * (steps or 0) + self._in_epoch
        first = (self._first_epoch or 0) * (steps or 0) + (self._first_batch or 0)
        total = epochs * steps if steps else None
        left = ""
        if total and done > first:
            seconds = (self._drawn - self._started) * (total - done) / (done - first)
            left = f"{_clock(seconds)} left"
        self._progress.update(
            self._task,
            description=f"epoch {self._epoch + 1}/{epochs}",
            completed=done,
            total=total,
            left=left,
            figures=_text(logs) if logs else self._progress.tasks[0].fields["figures"],
            refresh=True,
        )


def _text(logs: Mapping[str, Any] | None) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in (logs or {}).items())


def _clock(seconds: float) -> str:
    """3725 seconds as 1:02:05.

    >>> _clock(3725), _clock(59.6)
    ('1:02:05', '1:00')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
