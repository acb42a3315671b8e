"""Going on with a training that was stopped, from the end of its last epoch."""

import dataclasses
import json
import os
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np

from keras_transformers.training.checkpoints import SaveWeights


class Stateful(Protocol):
    """A callback that has something of its own to remember."""

    def state(self) -> list[np.ndarray]:
        """All of it."""
        ...

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Puts back what `state` gave."""
        ...


class TrainingState(keras.callbacks.Callback):
    """Writes at the end of an epoch what it takes to go on from there, whole or not at all.

    That is the model's weights and the states of its random numbers, the optimizer's moments and
    its number of updates, what callbacks remember, and the figures of all epochs. Put it behind
    the other callbacks. The place in the data is the caller's to find again: so many epochs times
    so many batches.

        state = TrainingState("state.npz")
        callbacks = [SaveWeights("best.weights.h5", monitor="val_accuracy"), state]
        state.restore(model, callbacks)
        model.fit(
            batches.skip(len(state.epochs) * steps), steps_per_epoch=steps,
            initial_epoch=len(state.epochs), epochs=10, callbacks=callbacks, ...
        )

    Args:
        path: ends in ".npz".
        callbacks: those that have a state, `averaging.CheckpointAveraging` for one.

    Attributes:
        epochs: a dict for each epoch that is done: its number from 1, `epoch`, and Keras' logs.
    """

    def __init__(self, path: str | os.PathLike[str], *, callbacks: Sequence[Stateful] = ()) -> None:
        super().__init__()
        self.path = Path(path)
        self._callbacks = callbacks
        self.epochs: list[dict[str, float]] = []

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the state."""
        figures = {name: float(value) for name, value in (logs or {}).items()}
        self.epochs.append({"epoch": epoch + 1} | figures)
        arrays: dict[str, Any] = {"epochs": np.array(json.dumps(self.epochs))}
        arrays |= {f"variable_{i}": np.array(v) for i, v in enumerate(_variables(self.model))}
        for number, callback in enumerate(self._callbacks):
            arrays |= {f"callback_{number}_{i}": a for i, a in enumerate(callback.state())}
        scratch = self.path.with_name(f".{os.getpid()}-{self.path.name}")
        try:
            np.savez(scratch, **arrays)
            scratch.replace(self.path)
        finally:
            scratch.unlink(missing_ok=True)

    def restore(
        self, model: keras.Model, callbacks: Iterable[keras.callbacks.Callback] = ()
    ) -> None:
        """Puts back what the file holds; does nothing where there is none.

        Args:
            model: as it was made and compiled when the training began.
            callbacks: of these a `SaveWeights` with `monitor` learns the best figure so far.

        Raises:
            ValueError: the file is damaged, or of another model or optimizer.
        """
        if not self.path.is_file():
            return
        try:
            with np.load(self.path) as file:
                arrays = _numbered(file, "variable_")
                states = [_numbered(file, f"callback_{n}_") for n in range(len(self._callbacks))]
                epochs = json.loads(str(file["epochs"]))
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.path}: damaged ({error}): remove it, and the training starts anew"
            ) from error
        variables = _variables(model)
        if [array.shape for array in arrays] != [tuple(v.shape) for v in variables]:
            raise ValueError(
                f"{self.path}: the state of another model or optimizer: {len(arrays)} variables, "
                f"of {sum(array.size for array in arrays):,} numbers, for {len(variables)}, of "
                f"{sum(int(np.prod(v.shape)) for v in variables):,}"
            )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        for stateful, state in zip(self._callbacks, states, strict=True):
            stateful.load_state(state)
        self.epochs = epochs
        for callback in callbacks:
            if isinstance(callback, SaveWeights) and callback.monitor:
                callback.best = max(epoch[callback.monitor] for epoch in epochs)


def check_same(folder: Path, config: Any, *, may_differ: Collection[str] = ()) -> Path:
    """The folder of a run that `runs.start` began with the same configuration.

    Args:
        folder: of the run.
        config: a dataclass.
        may_differ: its fields that do not matter.

    Raises:
        FileNotFoundError: no run was begun there.
        ValueError: it was begun with another configuration; the differences are said.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder}: no run that could go on; check --name, or leave --resume out"
        )
    before = json.loads(path.read_text("utf-8"))
    now = json.loads(json.dumps(dataclasses.asdict(config), default=str))  # as it was written
    differences = [
        f"{name} was {before.get(name)}, is {now.get(name)}"
        for name in sorted((before.keys() | now.keys()) - set(may_differ))
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise ValueError(
            f"{folder} was begun with another configuration: {', '.join(differences)}; give the "
            "same options, or another --name"
        )
    return folder


def _numbered(file: Mapping[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    """The arrays prefix0, prefix1, ... of a file."""
    return [file[f"{prefix}{i}"] for i in range(sum(name.startswith(prefix) for name in file))]


def _variables(model: keras.Model) -> list[Any]:
    """What changes as a model trains, but for its metrics."""
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]
