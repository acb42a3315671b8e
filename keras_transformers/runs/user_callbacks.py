"""Checks the callbacks that a user passes, before the first step, for what would fail or be undone.

A run keeps its own checkpoints and its own rule for the best epoch. A callback that works against
them would otherwise be overruled, or fail when it first acts, hours later.
"""

import dis
import inspect
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import keras

from keras_transformers.runs.monitors import Mode
from keras_transformers.runs.resume.callback import Resume

_BEST = {"max": "highest", "min": "lowest"}


def as_callbacks(
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None,
) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of an argument: one, several, or None.

    Raises:
        TypeError: something else is among them; the message says where.
    """
    if callbacks is None:
        return []
    if isinstance(callbacks, keras.callbacks.Callback):
        return [callbacks]
    if isinstance(callbacks, type | str) or not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks={callbacks!r:.80}: {_remedy(callbacks)}")
    for place, callback in enumerate(callbacks):
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(f"callbacks[{place}] is {callback!r:.80}: {_remedy(callback)}")
    return list(callbacks)


def _remedy(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, keras.callbacks.Callback):
        return f"pass an object, {value.__name__}(...), not the class"
    return "pass a keras.callbacks.Callback, or a list of them"


def check_callbacks(
    callbacks: Sequence[keras.callbacks.Callback],
    model: keras.Model,
    *,
    monitor: str | None,
    mode: Mode = "max",
    weights: Collection[Path],
) -> None:
    """Checks callbacks against what the run does itself.

    Args:
        callbacks: the user's.
        model: compiled.
        monitor: the figure that decides which epoch's weights are kept; None for the last epoch's.
        mode: whether the highest ("max") or the lowest ("min") figure is the best.
        weights: the files that the run writes.

    Raises:
        ValueError: a callback would be overruled, would overwrite the run's files or state, or sets
            a learning rate that cannot be set; the message has the remedy.
    """
    has_schedule = not isinstance(model.optimizer.learning_rate, keras.Variable)
    paths = [path.resolve() for path in weights]
    for callback in callbacks:
        name = f"callbacks: {type(callback).__name__}"
        if isinstance(callback, keras.callbacks.BackupAndRestore | Resume):
            raise ValueError(
                f"{name} restores a state of its own over the run's checkpoints: leave it out. A "
                "run resumes from its folder"
            )
        if isinstance(callback, keras.callbacks.SwapEMAWeights) and not _averages(model.optimizer):
            raise ValueError(
                f"{name} needs averages of the weights, which the optimizer does not keep: make it "
                "with use_ema=True, or leave the callback out"
            )
        if restores_weights(callback) and monitor is not None:
            _check_restored_weights(callback, name, monitor, mode)
        is_checkpoint = isinstance(callback, keras.callbacks.ModelCheckpoint)
        if is_checkpoint and Path(callback.filepath).resolve() in paths:
            raise ValueError(
                f"{name} writes {callback.filepath}, as the run does: choose another file"
            )
        if has_schedule and sets_learning_rate(callback):
            raise ValueError(
                f"{name} sets the learning rate, which the optimizer's schedule decides at every "
                "update: leave the callback out, or make an optimizer whose learning_rate is a "
                "number, such as optimizer=keras_transformers.training.adamw(1e-4)"
            )


def _averages(optimizer: Any) -> bool:
    return bool(getattr(optimizer, "inner_optimizer", optimizer).use_ema)


def restores_weights(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback ends `fit` with the weights of the epoch that it found best."""
    return isinstance(callback, keras.callbacks.EarlyStopping) and callback.restore_best_weights


def _check_restored_weights(stopping: Any, name: str, monitor: str, mode: Mode) -> None:
    """Checks that EarlyStopping would restore the weights of the epoch that the run keeps."""
    # Keras derives "auto" from a metric's name.
    automatic = {"max": monitor.endswith("accuracy"), "min": monitor in ("val_loss", "loss")}[mode]
    same_mode = stopping.mode == mode or (stopping.mode == "auto" and automatic)
    others = {"min_delta": stopping.min_delta, "start_from_epoch": stopping.start_from_epoch}
    if stopping.monitor == monitor and same_mode and not any(others.values()):
        return
    options = {"monitor": stopping.monitor, "mode": stopping.mode}
    options |= {option: value for option, value in others.items() if value}
    rule = ", ".join(f"{option}={value!r}" for option, value in options.items())
    raise ValueError(
        f"{name} would restore the weights of the best epoch by its own rule ({rule}), but the run "
        f"keeps those of the epoch with the {_BEST[mode]} {monitor}: leave out "
        f"restore_best_weights, which keeps its patience; or let both follow one figure, by the "
        f"callback's monitor={monitor!r}, mode={mode!r} and no other rule, or by the run's "
        f"monitor={stopping.monitor!r}"
    )


def sets_learning_rate(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback's code assigns an optimizer's learning rate.

    It reads the code of the methods: `optimizer.learning_rate = rate` and
    `optimizer.learning_rate.assign(rate)`. What `setattr` or a function elsewhere sets is not seen.
    """
    return any(_assigns(code) for function in _functions(callback) for code in _codes(function))


def _functions(callback: keras.callbacks.Callback) -> Iterator[Any]:
    """Yields the methods that a callback does not have from Keras' base class, wrapped or not."""
    kinds = itertools.takewhile(
        lambda kind: kind is not keras.callbacks.Callback, type(callback).__mro__
    )
    members = [value for kind in kinds for value in vars(kind).values()]
    for value in [*members, *vars(callback).values()]:  # LambdaCallback has functions as attributes
        function = inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(function):
            yield function


def _codes(function: Any) -> Iterator[CodeType]:
    """Yields a function's code, and that of the functions inside it."""
    left = [function.__code__]
    while left:
        code = left.pop()
        yield code
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _assigns(code: CodeType) -> bool:
    for before, now in itertools.pairwise(dis.get_instructions(code)):
        # From Python 3.13 on, one instruction may load two names.
        loaded = before.argval[-1:] if isinstance(before.argval, tuple) else (before.argval,)
        if now.opname == "STORE_ATTR" and now.argval == "learning_rate" and loaded != ("self",):
            return True
        if now.argval == "assign" and loaded == ("learning_rate",):
            return True
    return False
