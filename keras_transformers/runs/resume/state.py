"""Reads and writes checkpoints: everything that changes as a model trains, as named arrays."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import Variable

from keras_transformers.runs.resume.callback_states import Stateful
from keras_transformers.runs.resume.replicas import Replicas, values
from keras_transformers.runs.resume.snapshots import reading

Callbacks = Sequence[tuple[str, Stateful]]  # class name, and the object with the state


class Position(NamedTuple):
    """Says how far a training has got.

    Attributes:
        epoch: number of finished epochs.
        batch: number of finished batches in the current epoch.
        step: number of finished batches since the training began.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0


@dataclasses.dataclass
class State:
    """Holds a checkpoint's contents besides the model's and the optimizer's variables.

    Attributes:
        position: how far the training has got.
        is_finished: whether a callback has stopped the training permanently.
        epochs: the figures of each finished epoch.
        logs: the logs of the last batch, within an epoch.
        seconds: duration of the training, over all of its processes.
        metrics: the values of the metrics' variables; set by `restore` only.
        callbacks: the state of each callback; set by `restore` only.
    """

    position: Position
    is_finished: bool
    epochs: list[dict[str, float]]
    logs: dict[str, float]
    seconds: float
    metrics: list[np.ndarray] = dataclasses.field(default_factory=list)
    callbacks: list[list[np.ndarray]] = dataclasses.field(default_factory=list)


def arrays(
    state: State, model: keras.Model, callbacks: Callbacks, replicas: Replicas
) -> Iterator[tuple[str, np.ndarray]]:
    """Returns the named arrays to write, one at a time; all workers must call this together."""
    groups = _groups(model)
    if state.position.batch:  # an epoch starts by resetting the metrics
        groups["metric"] = model.metrics_variables
    apart = replicas.gather(variable for group in groups.values() for variable in group)
    described = {
        "position": state.position,
        "is_finished": state.is_finished,
        "epochs": state.epochs,
        "logs": state.logs,
        "seconds": state.seconds,
        "callbacks": [name for name, _ in callbacks],
        "optimizer": type(model.optimizer).__name__,
        "replicas": replicas.number,
        "shapes": {
            kind: [replicas.shape(variable) for variable in group] for kind, group in groups.items()
        },
    }

    def one_by_one() -> Iterator[tuple[str, np.ndarray]]:
        yield "state", np.array(json.dumps(described))
        for kind, variables in groups.items():
            for index, array in enumerate(values(variables, apart)):
                yield f"{kind}_{index}", array
        for number, (_, callback) in enumerate(callbacks):
            for index, array in enumerate(callback.state()):
                yield f"callback_{number}_{index}", array

    return one_by_one()


def restore(path: Path, model: keras.Model, callbacks: Callbacks, replicas: Replicas) -> State:
    """Restores the variables and returns the rest of the state.

    Raises:
        ValueError: the checkpoint has another model, optimizer, number of replicas or other
            callbacks; in this case nothing is changed.
    """
    with reading(path) as file:
        described = json.loads(str(file["state"]))
        names = [name for name, _ in callbacks]
        _check_same(path, "callbacks with a state", described["callbacks"], names)
        _check_same(path, "replicas", described["replicas"], replicas.number)
        optimizer = type(model.optimizer).__name__
        _check_same(path, "optimizer", described["optimizer"], optimizer)
        groups = _groups(model)
        for kind, variables in groups.items():
            check_shapes(path, described["shapes"][kind], variables, replicas)
        for kind, variables in groups.items():
            replicas.assign(variables, (file[f"{kind}_{i}"] for i in range(len(variables))))
        return State(
            position=Position(*described["position"]),
            is_finished=described["is_finished"],
            epochs=described["epochs"],
            logs=described["logs"],
            seconds=described["seconds"],
            metrics=_numbered(file, "metric"),
            callbacks=[_numbered(file, f"callback_{number}") for number in range(len(names))],
        )


def _groups(model: keras.Model) -> dict[str, list[Variable]]:
    """Returns the variables that change as a model trains, except its metrics."""
    return {"variable": model.variables, "optimizer": model.optimizer.variables}


def _numbered(file: Mapping[str, np.ndarray], kind: str) -> list[np.ndarray]:
    """Returns the arrays kind_0, kind_1, ... of a file."""
    count = sum(name.rpartition("_")[0] == kind for name in file)
    return [file[f"{kind}_{index}"] for index in range(count)]


def _check_same(path: Path, what: str, before: Any, now: Any) -> None:
    if before != now:
        raise ValueError(
            f"{path}: {what}: {before} before, {now} now; resume with the same training"
        )


def check_shapes(
    path: Path, shapes: Sequence[Sequence[int]], variables: Sequence[Variable], replicas: Replicas
) -> None:
    """Raises a ValueError with the first differences unless the saved shapes fit the variables."""
    before = [tuple(shape) for shape in shapes]
    now = [replicas.shape(variable) for variable in variables]
    if before == now:
        return
    differences = [
        f"{variable.path} was {old}, is {new}"
        for old, new, variable in zip(before, now, variables, strict=False)
        if old != new
    ]
    raise ValueError(
        f"{path}: the state of another model: {len(before)} variables with "
        f"{sum(map(math.prod, before)):,} numbers, but this model has {len(now)} with "
        f"{sum(map(math.prod, now)):,}{'; '.join(['', *differences[:3]])}"
    )
