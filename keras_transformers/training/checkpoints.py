"""Weights on disk while a model trains."""

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.training.resume_replicas import Replicas


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
        scratch = self.path.with_name(f".{uuid.uuid4().hex}-{self.path.name}")
        try:
            self.model.save_weights(scratch)
            scratch.replace(self.path)
        finally:
            scratch.unlink(missing_ok=True)
