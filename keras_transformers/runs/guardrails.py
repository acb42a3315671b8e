"""Stops a training that has gone wrong before it costs more, or spoils what it had."""

import errno
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "half": 2,
    "bfloat16": 2,
    "int32": 4,
    "float": 4,
    "int64": 8,
    "double": 8,
}
# Why a file cannot be written that could be in the same place later.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite, or a weight did."""


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Raises at the batch whose loss is NaN or infinite, or the epoch that ends with such weights.

    Keras' TerminateOnNaN ends `fit` as if all were well: what follows would average, score and
    export weights that are NaN. Put this in front of the callbacks that save: what they wrote at
    the end of an earlier epoch is then good, and stays.

    The loss in Keras' logs is the mean since the epoch began, of all replicas and of all parts of
    an accumulated batch; it turns NaN or infinite with the batch that is, and stays so. Keras reads
    it after each batch whatever the callbacks do, so looking at it costs nothing.

    Args:
        checkpoint: file that the error names as the last good one, if it exists.

    Raises:
        NonFiniteLossError: from `fit`; it names the step, the batch and the epoch. With
            `steps_per_execution` above 1 it names the batches that ran together.
    """

    def __init__(self, checkpoint: Any = None) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self._epoch = 0
        self._first_batch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch for the message."""
        self._epoch = epoch + 1

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Remembers the batch, the first of several that run together."""
        self._first_batch = batch + 1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Looks at the loss."""
        last = batch + 1
        batches = f"batch {last}"
        if self._first_batch < last:
            batches = f"one of the batches {self._first_batch} to {last}"
        self._check("loss", logs, f"{batches} of epoch {self._epoch}")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Looks at the validation loss and at the weights, which the last update may have spoiled.

        That update's own loss was measured before it.
        """
        place = f"the end of epoch {self._epoch}"
        self._check("val_loss", logs, place)
        spoiled = non_finite_weights(self.model)
        if spoiled:
            raise self._error(f"{len(spoiled)} weights ({spoiled[0]}, ...) are not finite", place)

    def _check(self, name: str, logs: Mapping[str, Any] | None, place: str) -> None:
        value = float((logs or {}).get(name, 0.0))
        if not math.isfinite(value):
            raise self._error(f"{name} is {value}", place)

    def _error(self, what: str, place: str) -> NonFiniteLossError:
        kept = "no checkpoint was written yet"
        if self.checkpoint is not None and self.checkpoint.is_file():
            kept = f"the last good weights are in {self.checkpoint}"
        step = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        return NonFiniteLossError(
            f"{what} at step {step} ({place}); {kept}. Lower the learning rate, clip "
            "gradients, warm up longer, or look for wrong values in that batch"
        )


def non_finite_weights(model: keras.Model) -> list[str]:
    """The paths of the trainable weights that hold a NaN or an infinity.

    One pass over the weights: worth its time before each write of a checkpoint.
    """
    variables = model.trainable_variables
    if not variables:
        return []
    finite = ops.stack([ops.all(ops.isfinite(ops.convert_to_tensor(v))) for v in variables])
    kept = ops.convert_to_numpy(finite)
    return [
        variable.path for variable, is_finite in zip(variables, kept, strict=True) if not is_finite
    ]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an accelerator, or TensorFlow on the CPU, had no memory left for a tensor.

    TensorFlow raises `tf.errors.ResourceExhaustedError`, XLA that or its own error with
    RESOURCE_EXHAUSTED in its text. Where Linux runs out of memory it kills the process instead, and
    nobody is told. Of a disk without room TensorFlow says the same: see `no_room`.
    """
    names = f"{type(error).__name__} {error}"
    is_exhausted = "ResourceExhaustedError" in names or "RESOURCE_EXHAUSTED" in names
    return is_exhausted and not no_room(error)


def no_room(error: BaseException) -> str:
    """Why a file could not be written; "" if the error is of another kind.

    That is "No space left on device" and such, as Python, HDF5 or TensorFlow tell it.
    """
    reasons = [os.strerror(number) for number in _NO_ROOM]
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return os.strerror(error.errno)
    return next((reason for reason in reasons if reason in str(error)), "")


def out_of_memory_message(
    error: BaseException,
    *,
    batch_size: int | None,
    unit: str = "examples",
    option: str = "--batch-size",
    accumulate: int | None = None,
    bytes_in_use: int | None = None,
) -> str:
    """What to try after memory ran out: a batch that would fit.

    An allocation of r bytes failed beside u bytes in use, so the whole batch needs u + r at least,
    and what grows with the batch must shrink to u: of B examples at most B u / (u + r) fit, and
    fewer where the weights take their share of u or more was still to come. Hence halves are
    tried until they are below that bound; where u or r is not known, one half.

    Args:
        error: one of which `is_out_of_memory` is true.
        batch_size: what went through the model at once; None where it is not known.
        unit: what is counted: "examples" or "tokens".
        option: of the command line, that sets it.
        accumulate: of how many such batches an update was made; None where that is no option.
        bytes_in_use: the most that were allocated; by default TensorFlow is asked for its first
            GPU.

    Returns:
        One or two sentences; the first says what is known, the second what to try.

    Example:
        >>> error = MemoryError("RESOURCE_EXHAUSTED: trying to allocate 3.0GiB")
        >>> print(out_of_memory_message(error, batch_size=64, accumulate=1, bytes_in_use=2**30))
        out of memory: 3.22 GB more than the 1.07 GB in use were asked for, so at most 16 of 64
        examples would fit. Take --batch-size 16 --accumulate 4, which makes the same updates
    """
    if batch_size is None or batch_size < 2:
        return (
            "out of memory: no smaller batch is left to try. Take shorter sequences, --precision "
            "mixed_bfloat16, or a smaller model"
        )
    in_use = _gpu_bytes_in_use() if bytes_in_use is None else bytes_in_use
    requested = _requested_bytes(str(error))
    parts, known = 2, f"{batch_size} {unit} at once were too many"
    if in_use and requested:
        bound = batch_size * in_use // (in_use + requested)
        known = (
            f"{requested / 1e9:.2f} GB more than the {in_use / 1e9:.2f} GB in use were asked for, "
            f"so at most {bound} of {batch_size} {unit} would fit"
        )
        while batch_size // parts > max(bound, 1):
            parts *= 2
    smaller = max(batch_size // parts, 1)
    if accumulate is None:
        remedy = f"Take {option} {smaller}, and a lower learning rate with it"
    else:
        parts = -(-batch_size // smaller)
        remedy = (
            f"Take {option} {smaller} --accumulate {accumulate * parts}, "
            "which makes the same updates"
        )
    return f"out of memory: {known}. {remedy}"


def _requested_bytes(message: str) -> int | None:
    """The size of the allocation that failed, as TensorFlow or XLA tell it."""
    amount = re.search(r"allocate (\d+(?:\.\d+)?) ?(KiB|MiB|GiB)?", message)
    if amount:
        return int(float(amount[1]) * _UNITS[amount[2] or ""])
    tensor = re.search(r"tensor with shape ?\[([\d,]*)\] and type (\w+)", message)
    if tensor and tensor[2] in _BYTES:
        return math.prod(int(size) for size in tensor[1].split(",") if size) * _BYTES[tensor[2]]
    return None


def _gpu_bytes_in_use() -> int | None:
    """The most that TensorFlow had allocated on its first GPU; None without one."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
