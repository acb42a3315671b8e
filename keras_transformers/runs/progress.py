"""Shows how far a training has got, and the time left for all of its epochs."""

import atexit
import html
import re
import sys
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import keras
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from keras_transformers.runs.telemetry import plain

_SECONDS_BETWEEN_DRAWINGS = 0.1
SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_PAGES = 0.5


class NoProgress(keras.callbacks.ProgbarLogger):
    """Replaces the progress bar that `fit` would add, and shows none."""

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Stores the numbers of `epochs` and `steps`, each None if unknown."""
        self.params = params

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""


class _Pace:
    """Computes progress over all epochs, and the time left at the pace so far.

    The time includes validation and checkpoints. If the number of steps is unknown, the time left
    is known from the second epoch on.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.epochs: int = params["epochs"]
        self.steps: int | None = params.get("steps")
        self.epoch = 0
        self.in_epoch = 0
        self._first_epoch: int | None = None
        self._first_batch: int | None = None
        self._started = monotonic()

    def start_epoch(self, epoch: int) -> None:
        """Starts an epoch; in a resumed training, the first one seen may be a later one."""
        if self._first_epoch is None:
            self._first_epoch = epoch
        self.epoch, self.in_epoch = epoch, 0

    def start_batch(self, batch: int) -> None:
        """Starts a batch; in a resumed epoch, the first one seen may be a later one."""
        if self._first_batch is None:
            self._first_batch = batch

    def end_epoch(self) -> None:
        """Ends the epoch; its number of steps is known now."""
        self.steps = self.steps or self.in_epoch

    @property
    def done(self) -> int:
        """Steps done so far, over all epochs."""
        return self.epoch * (self.steps or 0) + self.in_epoch

    @property
    def total(self) -> int | None:
        """Steps of all epochs; None if unknown."""
        return self.epochs * self.steps if self.steps else None

    def left(self, now: float) -> str:
        """Returns the time left, such as "3:00 left", or "" while it is unknown."""
        first = (self._first_epoch or 0) * (self.steps or 0) + (self._first_batch or 0)
        if not self.total or self.done <= first:
            return ""
        return (
            f"{clock((now - self._started) * (self.total - self.done) / (self.done - first))} left"
        )


class LineProgress(keras.callbacks.Callback):
    """Prints a line with the time left every few seconds, for logs; Keras adds one per epoch."""

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the clock."""
        self._pace, self._printed = _Pace(self.params), monotonic()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the epoch."""
        self._pace.start_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Notes where the work starts."""
        self._pace.start_batch(batch)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Prints a line if one is due."""
        pace, now = self._pace, monotonic()
        pace.in_epoch = batch + 1
        if now - self._printed < SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        steps = f"{pace.in_epoch}/{pace.steps}" if pace.steps else str(pace.in_epoch)
        parts = (f"epoch {pace.epoch + 1}/{pace.epochs}, step {steps}", pace.left(now), _text(logs))
        print(", ".join(filter(None, parts)), flush=True)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts the epoch."""
        self._pace.end_epoch()


class RichProgress(NoProgress):
    """Shows a bar over all epochs with the time left, and above it a line per finished epoch.

    The bar is drawn between batches, at most ten times a second, without a thread.

    Args:
        console: where to draw; standard output by default.
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

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Draws the empty bar, and ensures that the terminal is restored even after an error."""
        self._task = self._progress.add_task("", total=None, left="", figures="")
        self._pace, self._drawn = _Pace(self.params), monotonic()
        self._progress.start()
        atexit.register(self._progress.stop)  # an error in `fit` calls no callback

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Names the epoch."""
        self._pace.start_epoch(epoch)
        self._draw(None)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Notes where the work starts."""
        self._pace.start_batch(batch)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Moves the bar."""
        self._pace.in_epoch = batch + 1
        if monotonic() - self._drawn >= _SECONDS_BETWEEN_DRAWINGS:
            self._draw(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's figures above the bar."""
        self._pace.end_epoch()
        self._progress.console.print(f"epoch {epoch + 1}: {_text(logs)}", highlight=False)
        self._draw(logs)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Leaves the bar where it is."""
        self._draw(logs)
        self._progress.stop()
        atexit.unregister(self._progress.stop)

    def _draw(self, logs: Mapping[str, Any] | None) -> None:
        self._drawn = monotonic()
        pace = self._pace
        self._progress.update(
            self._task,
            description=f"epoch {pace.epoch + 1}/{pace.epochs}",
            completed=pace.done,
            total=pace.total,
            left=pace.left(self._drawn),
            figures=_text(logs) if logs else self._progress.tasks[0].fields["figures"],
            refresh=True,
        )


class NotebookProgress(NoProgress):
    """Shows a bar with the time left under a notebook's cell, and a table of finished epochs.

    Args:
        display: shows HTML and returns what replaces it, as `IPython.display.display` with
            `display_id=True`, which is the default.
    """

    def __init__(self, display: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._display = display or _display_in_notebook
        self._rows: list[dict[str, str]] = []

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Draws the empty bar."""
        self._pace, self._drawn = _Pace(self.params), monotonic()
        self._rows = []
        self._shown = self._display(_Html(self._page()))

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the epoch."""
        self._pace.start_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Notes where the work starts."""
        self._pace.start_batch(batch)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Moves the bar."""
        self._pace.in_epoch = batch + 1
        if monotonic() - self._drawn >= _SECONDS_BETWEEN_PAGES:
            self._draw()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Adds the epoch's figures to the table."""
        self._pace.end_epoch()
        self._rows.append({"epoch": str(epoch + 1), **_texts(logs)})
        self._draw()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Leaves the table."""
        self._draw()

    def _draw(self) -> None:
        self._drawn = monotonic()
        self._shown.update(_Html(self._page()))

    def _page(self) -> str:
        pace = self._pace
        bar = (
            f'<progress value="{pace.done}" max="{pace.total or 1}" style="width: 20em">'
            "</progress> "
            f"epoch {min(pace.epoch + 1, pace.epochs)}/{pace.epochs} {pace.left(monotonic())}"
        )
        names = list(dict.fromkeys(name for row in self._rows for name in row))
        if not names:
            return bar
        cells = [names, *([row.get(name, "") for name in names] for row in self._rows)]
        table = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in cells
        )
        return f"{bar}<table>{table}</table>"


class _Html:
    """Holds HTML that a notebook shows unchanged."""

    def __init__(self, page: str) -> None:
        self._page = page

    def _repr_html_(self) -> str:
        return self._page

    def __repr__(self) -> str:
        return re.sub("<[^>]*>", " ", self._page)


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _display_in_notebook(page: Any) -> Any:
    from IPython.display import display

    return display(page, display_id=True)


def _text(logs: Mapping[str, Any] | None) -> str:
    """Returns figures for a line; a metric of several numbers shows all of them."""
    return " ".join(f"{name} {text}" for name, text in _texts(logs).items())


def _texts(logs: Mapping[str, Any] | None) -> dict[str, str]:
    numbers = {name: np.ravel(plain(value)) for name, value in (logs or {}).items()}
    return {name: ",".join(f"{x:.4g}" for x in of) for name, of in numbers.items()}


def clock(seconds: float) -> str:
    """Returns seconds as a time: 1:02:05 for 3725.

    >>> clock(3725), clock(59.6)
    ('1:02:05', '1:00')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
