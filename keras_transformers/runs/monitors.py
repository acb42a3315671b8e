"""Says which figures of an epoch a run can follow, and whether the highest or lowest is best."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import keras

from keras_transformers.data.batching import Batches
from keras_transformers.dependencies.private_api import lower_is_better
from keras_transformers.training.strategies import shard

Mode = Literal["max", "min"]

_FOLLOWING = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ReduceLROnPlateau,
)
_LOWER = re.compile(r"(^|_)(loss|error|perplexity)(_|$)")


def mode_of(monitor: str, model: keras.Model) -> Mode:
    """Returns "min" for losses, errors and perplexities, and for metrics of which Keras says so."""
    name = monitor.removeprefix("val_")
    if any(metric.name == name and lower_is_better(metric) for metric in _metrics(model)):
        return "min"
    return "min" if _LOWER.search(name) else "max"


def is_better(value: float, best: float, mode: Mode) -> bool:
    """Returns whether a figure is better than the best so far; NaN never is."""
    return value > best if mode == "max" else value < best


def best_of(
    epochs: Iterable[dict[str, float]], monitor: str, mode: Mode
) -> dict[str, float] | None:
    """Returns the logs of the epoch with the best figure, the first of equals; None without one."""
    best, figure = None, -math.inf if mode == "max" else math.inf
    for epoch in epochs:
        if is_better(epoch.get(monitor, math.nan), figure, mode):
            best, figure = epoch, epoch[monitor]
    return best


class BestEpoch(keras.callbacks.Callback):
    """Adds `best_epoch` to the logs of each epoch: the number, from 1, of the best one so far.

    Put it after the callbacks that measure, and before those that use the logs. It is NaN as long
    as the figure was.

    Args:
        monitor: the figure that decides which epoch is best.
        mode: whether the highest ("max") or the lowest ("min") figure is the best.
        earlier: returns the logs of the epochs that are done, also before a restart.
    """

    def __init__(
        self, monitor: str, mode: Mode, earlier: Callable[[], Sequence[dict[str, float]]]
    ) -> None:
        super().__init__()
        self._monitor = monitor
        self._mode: Mode = mode
        self._earlier = earlier

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the number."""
        if logs is None:
            return
        figure = float(logs.get(self._monitor, math.nan))
        now = {"epoch": epoch + 1, self._monitor: figure}
        best = best_of([*self._earlier(), now], self._monitor, self._mode)
        logs["best_epoch"] = math.nan if best is None else float(best["epoch"])


def monitors_of(callbacks: Iterable[keras.callbacks.Callback]) -> dict[str, str]:
    """Returns each figure that callbacks follow -> how messages name the callback."""
    followed = {}
    for callback in callbacks:
        if isinstance(callback, _FOLLOWING) and getattr(callback, "save_best_only", True):
            monitor = callback.monitor
            followed[monitor] = f"callbacks: {type(callback).__name__}(monitor={monitor!r})"
    return followed


def figures_of_epochs(
    model: keras.Model,
    batches: Batches,
    validation: Batches | None,
    scores: Sequence[Callable[[], Mapping[str, float]]],
) -> list[str]:
    """Returns the names of the figures that the logs of an epoch will have.

    It measures a batch, and what `scores` measure, with the weights as they are.

    Args:
        model: compiled.
        batches: of the training.
        validation: what Keras evaluates after each epoch.
        scores: each measures further figures after each epoch.
    """
    source = batches if validation is None else validation
    dataset = shard(source.dataset().take(1))
    names = list(model.evaluate(dataset, return_dict=True, verbose=0))
    figures = [f"val_{name}" for name in names] if validation is not None else []
    figures += [f"val_{name}" for score in scores for name in score()]
    return list(dict.fromkeys([*figures, *names]))


def check_monitor(place: str, monitor: str, figures: Sequence[str]) -> None:
    """Raises ValueError if a followed figure is not among those of an epoch; it lists them."""
    if monitor in figures:
        return
    needs = ""
    if monitor.startswith("val_") and not any(name.startswith("val_") for name in figures):
        needs = ", which needs validation data"
    names = ", ".join(sorted(set(figures)))
    raise ValueError(f"{place}: no such figure{needs}: use one of {names}")


def _metrics(model: keras.Model) -> list[Any]:
    """Returns the model's metrics, those of its outputs too, as far as they exist yet."""
    return [inner for metric in model.metrics for inner in getattr(metric, "metrics", [metric])]
