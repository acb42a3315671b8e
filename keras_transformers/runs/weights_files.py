"""Saves weights while a model trains, and loads them again."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_transformers import files
from keras_transformers.files.errors import no_room
from keras_transformers.runs.monitors import Mode, is_better
from keras_transformers.runs.resume.replicas import Replicas
from keras_transformers.runs.resume.snapshots import CheckpointError

__all__ = ["SaveWeights", "WeightsFileError", "check_weights", "read_weights", "write_weights"]


class WeightsFileError(OSError):
    """A weights file is missing, damaged or belongs to another model."""


class SaveWeights(keras.callbacks.Callback):
    """Saves the weights at the end of an epoch, completely or not at all.

    Keras' ModelCheckpoint overwrites the old file, so a run killed at that moment loses both. This
    writes a new file and renames it. Among several workers, the chief writes.

    Args:
        path: the file, which must end in ".weights.h5".
        monitor: write only if this figure is the best so far; None writes after every epoch.
        mode: whether the highest ("max") or the lowest ("min") figure is the best.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, monitor: str | None = None, mode: Mode = "max"
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self.monitor = monitor
        self.mode: Mode = mode
        self.best = -float("inf") if mode == "max" else float("inf")

    def state(self) -> list[np.ndarray]:
        """Returns the best figure so far, for `resume.Resume`."""
        return [np.array(self.best)]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores the result of `state`."""
        self.best = float(arrays[0])

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves the weights if they are due.

        Raises:
            ValueError: the logs lack `monitor`.
            CheckpointError: the file cannot be written; the disk may be full.
        """
        if self.monitor is not None:
            value = (logs or {}).get(self.monitor)
            if value is None:
                names = ", ".join(sorted(logs or {}))
                raise ValueError(
                    f"no {self.monitor!r} in the logs of this epoch (they have {names})"
                )
            if not is_better(float(value), self.best, self.mode):
                return
            self.best = float(value)
        if not Replicas(self.model).is_chief:
            return
        write_weights(self.model, self.path)


def write_weights(model: keras.Model, path: Path) -> None:
    """Writes a model's weights to a file, replacing it completely or not at all.

    Args:
        model: a built model.
        path: the file, which must end in ".weights.h5".

    Raises:
        CheckpointError: the file cannot be written; the disk may be full.
    """
    scratch = path.with_name(f".part-{path.name}")  # replaces the leftovers of a killed process
    try:
        _reserve(scratch, 4 * model.count_params() + 8192 * (1 + len(model.variables)))
        model.save_weights(scratch)
        files.sync(scratch)  # or a loss of power could leave an empty file
        scratch.replace(path)
    except OSError as error:
        state = "the earlier file is kept" if path.exists() else "there was no earlier file"
        raise CheckpointError(
            f"{path}: the weights could not be written ({no_room(error) or error}); {state}. Free "
            "some space or allow writing there, then resume the training"
        ) from error
    finally:
        scratch.unlink(missing_ok=True)


def check_weights(path: Path) -> None:
    """Checks that a weights file exists and is complete.

    Raises:
        WeightsFileError: it is missing or damaged.
    """
    try:
        h5py.File(path, "r").close()
    except OSError as error:
        raise _lost(path, error) from error


def read_weights(model: keras.Model, path: Path) -> None:
    """Loads the weights from a file into a model.

    Raises:
        WeightsFileError: the file is missing or damaged, belongs to another model, or contains NaN
            or infinity.
    """
    check_weights(path)
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError, RuntimeError) as error:  # from h5py, or from Keras
        raise _lost(path, error) from error
    wrong = [v.path for v in model.weights if not np.isfinite(keras.ops.convert_to_numpy(v)).all()]
    if wrong:
        raise _lost(path, f"NaN or infinity in {', '.join(wrong)}")


def _lost(path: Path, error: Exception | str) -> WeightsFileError:
    what = "cannot be read" if path.is_file() else "are gone"
    reason = " ".join(str(error).split())
    return WeightsFileError(
        f"{path}: the weights {what} ({reason}); put back a copy, or train again with another "
        "--name"
    )


def _reserve(path: Path, size: int) -> None:
    """Raises an OSError unless the disk and quotas have space for a file of `size` bytes.

    If HDF5 cannot write the end of a file, it tries again when the process ends, and crashes with a
    segmentation fault.
    """
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(file.fileno(), 0, size)
