"""Saves and restores callbacks, for a training that resumes in another process."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import keras
import numpy as np


@runtime_checkable
class Stateful(Protocol):
    """A callback with a state to save."""

    def state(self) -> list[np.ndarray]:
        """Returns the whole state."""
        ...

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores the result of `state`."""
        ...


# Keras' callbacks that have a state, and the attributes that hold it.
_OF_KERAS: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: ("best", "_batches_seen_since_last_saving"),
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
}


def stateful(callback: keras.callbacks.Callback) -> Stateful | None:
    """Returns the callback, or a wrapper for one of Keras', that has its state; None if unknown."""
    if isinstance(callback, Stateful):
        return callback
    for kind, attributes in _OF_KERAS.items():
        if isinstance(callback, kind):
            return _Attributes(callback, attributes)
    return None


class Muted:
    """Hides batches from callbacks until `undo`."""

    _METHODS = ("on_train_batch_begin", "on_train_batch_end")

    def __init__(self, callbacks: Iterable[keras.callbacks.Callback]) -> None:
        # LambdaCallback, for example, has instance attributes with these names; others have
        # methods.
        self._methods_of = [
            (callback, {name: vars(callback).get(name) for name in self._METHODS})
            for callback in callbacks
        ]
        for callback, methods in self._methods_of:
            vars(callback).update(dict.fromkeys(methods, _ignore))

    def undo(self) -> None:
        """Shows batches to the callbacks again."""
        for callback, methods in self._methods_of:
            for name, method in methods.items():
                if method is None:
                    del vars(callback)[name]
                else:
                    vars(callback)[name] = method


def _ignore(batch: int, logs: Mapping[str, Any] | None = None) -> None:
    pass


class _Attributes:
    """Saves attributes as a state: numbers and None as JSON, lists of arrays as arrays."""

    def __init__(self, owner: Any, names: Sequence[str]) -> None:
        self._owner = owner
        self._names = names

    def state(self) -> list[np.ndarray]:
        figures: dict[str, Any] = {}
        arrays: list[np.ndarray] = []
        for name in self._names:
            value = getattr(self._owner, name, None)
            if isinstance(value, list):
                figures[name] = {"arrays": len(value)}
                arrays += value
            else:
                figures[name] = value if isinstance(value, None | bool | int) else float(value)
        return [np.array(json.dumps(figures)), *arrays]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        figures, rest = json.loads(str(arrays[0])), list(arrays[1:])
        for name, value in figures.items():
            if isinstance(value, dict):
                count = value["arrays"]
                value, rest = rest[:count], rest[count:]
            setattr(self._owner, name, value)
