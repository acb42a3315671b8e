"""Stops a training that has gone wrong before it costs more, or spoils what it had."""

import math
from collections.abc import Mapping
from typing import Any

import keras


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite."""


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Raises at the batch whose loss is NaN or infinite, or the epoch whose validation loss is.

    Keras' TerminateOnNaN ends `fit` as if all were well: what follows would average, score and
    export weights that are NaN. Put this in front of the callbacks that save: what they wrote at
    the end of an earlier epoch is then good, and stays.

    Args:
        checkpoint: file that the error names as the last good one, if it exists.

    Raises:
        NonFiniteLossError: from `fit`; it names the step, the batch and the epoch.
    """

    def __init__(self, checkpoint: Any = None) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch for the message."""
        self._epoch = epoch + 1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Looks at the batch's loss; Keras' running mean of an epoch stays NaN once it is."""
        self._check("loss", logs, f"batch {batch + 1} of epoch {self._epoch}")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Looks at the validation loss, which the weights after the last batch decide."""
        self._check("val_loss", logs, f"the end of epoch {self._epoch}")

    def _check(self, name: str, logs: Mapping[str, Any] | None, place: str) -> None:
        value = float((logs or {}).get(name, 0.0))
        if math.isfinite(value):
            return
        kept = "no checkpoint was written yet"
        if self.checkpoint is not None and self.checkpoint.is_file():
            kept = f"the last good weights are in {self.checkpoint}"
        step = int(self.model.optimizer.iterations)
        raise NonFiniteLossError(
            f"{name} is {value} at step {step} ({place}); {kept}. Lower the learning rate, clip "
            "gradients, warm up longer, or look for wrong values in that batch"
        )
