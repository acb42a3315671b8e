"""Weights on disk while a model trains."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.runs.guardrails import no_room
from keras_transformers.runs.resume.replicas import Replicas
from keras_transformers.runs.resume.snapshots import CheckpointError

__all__ = ["SaveWeights", "write_weights"]


class SaveWeights(keras.callbacks.Callback):
    """Writes the weights at the end of an epoch, whole or not at all.

    Keras' ModelCheckpoint writes over the file that it replaces, so that a run killed at that
    moment leaves neither; this writes beside it and renames. Of several workers the chief writes.

    Args:
        path: ends in ".weights.h5".
        monitor: write only when this figure of the logs is higher than ever; None: every epoch.
    """

    def __init__(self, path: str | os.PathLike[str], *, monitor: str | None = None) -> None:
        super().__init__()
        self.path = Path(path)
        self.monitor = monitor
        self.best = -float("inf")

    def state(self) -> list[np.ndarray]:
        """The best figure so far, for `resume.Resume`."""
        return [np.array(self.best)]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Puts back what `state` gave."""
        self.best = float(arrays[0])

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes, if it is time.

        Raises:
            ValueError: the logs lack `monitor`.
            CheckpointError: the disk is full, for example.
        """
        if self.monitor is not None:
            value = (logs or {}).get(self.monitor)
            if value is None:
                known = ", ".join(sorted(logs or {}))
                raise ValueError(
                    f"no {self.monitor!r} in the logs of this epoch (they have {known})"
                )
            if not float(value) > self.best:  # NaN is never better
                return
            self.best = float(value)
        if not Replicas(self.model).is_chief:
            return
        write_weights(self.model, self.path)


def write_weights(model: keras.Model, path: Path) -> None:
    """Writes the weights to a file, whole or not at all; over what it was, if it is there.

    Args:
        model: built.
        path: ends in ".weights.h5".

    Raises:
        CheckpointError: the disk is full, for example.
    """
    scratch = path.with_name(f".part-{path.name}")  # over one of a killed process
    try:
        _reserve(scratch, 4 * model.count_params() + 8192 * (1 + len(model.variables)))
        model.save_weights(scratch)
        scratch.replace(path)
    except OSError as error:
        kept = "what was written before is kept" if path.exists() else "there were none"
        raise CheckpointError(
            f"{path}: the weights could not be written ({no_room(error) or error}); {kept}. Make "
            "room or allow writing there, then let the training go on"
        ) from error
    finally:
        scratch.unlink(missing_ok=True)


def _reserve(path: Path, size: int) -> None:
    """Sees whether there is room for a file of so many bytes, quotas included.

    HDF5 that could not write the end of a file tries again as the process ends, which then dies of
    a segmentation fault, whatever its status was to be.
    """
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(file.fileno(), 0, size)
