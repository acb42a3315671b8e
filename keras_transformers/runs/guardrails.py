"""Stops a training that has gone wrong before it wastes more time or overwrites good weights."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
from keras import ops

from keras_transformers.files.errors import no_room

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
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class NonFiniteLossError(ArithmeticError):
    """A loss or a weight became NaN or infinite."""


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Raises an error when a batch's loss, or a weight after an epoch, is NaN or infinite.

    Keras' TerminateOnNaN ends `fit` as if all were well, and the program would continue to average,
    score and export NaN weights. Put this before the callbacks that save, so that the files from
    earlier epochs stay intact.

    The loss in Keras' logs is the mean since the epoch began, over all replicas and all parts of an
    accumulated batch. It becomes NaN or infinite at the first such batch and stays so. Keras reads
    it after each batch anyway, so checking it costs nothing.

    Args:
        weights: the file that the error names as the last good weights, if it exists.

    Raises:
        NonFiniteLossError: from `fit`, naming the step, the batch and the epoch. With
            `steps_per_execution` above 1 it names the batches that ran together.
    """

    def __init__(self, weights: Path | None = None) -> None:
        super().__init__()
        self.weights = weights
        self._epoch = 0
        self._first_batch = 0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Remembers the epoch for the message."""
        self._epoch = epoch + 1

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Remembers the batch, or the first of several that run together."""
        self._first_batch = batch + 1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Checks the loss."""
        last = batch + 1
        batches = f"batch {last}"
        if self._first_batch < last:
            batches = f"one of the batches {self._first_batch} to {last}"
        self._check("loss", logs, f"{batches} of epoch {self._epoch}")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Checks the validation loss and the weights.

        The last update may have spoiled the weights: its own loss was measured before it.
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
        weights = "no weights were written yet"
        if self.weights is not None and self.weights.is_file():
            weights = f"the last good weights are in {self.weights}"
        step = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        return NonFiniteLossError(
            f"{what} at step {step} ({place}); {weights}. Lower the learning rate, clip "
            "gradients, warm up longer, or look for wrong values in that batch"
        )


def non_finite_weights(model: keras.Model) -> list[str]:
    """Returns the paths of the trainable weights that contain NaN or infinity.

    This takes one pass over the weights, so it is cheap enough to run before each checkpoint.
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
    """Returns whether an accelerator, or TensorFlow on the CPU, ran out of memory for a tensor.

    TensorFlow raises `tf.errors.ResourceExhaustedError`; XLA raises the same or its own error, with
    RESOURCE_EXHAUSTED in the text. TensorFlow also raises it for a full disk: see `no_room`. If
    Linux itself runs out of memory, it kills the process without an error.
    """
    names = f"{type(error).__name__} {error}"
    is_exhausted = "ResourceExhaustedError" in names or "RESOURCE_EXHAUSTED" in names
    return is_exhausted and not no_room(error)


def out_of_memory_message(
    error: BaseException,
    *,
    batch_size: int | None,
    unit: str = "examples",
    option: str = "--batch-size",
    accumulate: int | None = None,
    bytes_in_use: int | None = None,
) -> str:
    """Returns a message that suggests a batch size that would fit into memory.

    If an allocation of r bytes failed with u bytes in use, the whole batch needs at least u + r.
    What grows with the batch must shrink to u, so at most B u / (u + r) of B examples fit; fewer if
    weights are part of u, or if more allocations were to follow. The batch is halved until it is
    below that bound, or once if u or r is unknown.

    Args:
        error: an error for which `is_out_of_memory` is true.
        batch_size: how many examples or tokens went through the model at once; None if unknown.
        unit: "examples" or "tokens".
        option: the command line option that sets `batch_size`.
        accumulate: batches per update; None if the program has no such option.
        bytes_in_use: the peak of allocated bytes; by default that of TensorFlow's first GPU.

    Returns:
        One or two sentences: what is known, and what to try.

    Example:
        >>> error = MemoryError("RESOURCE_EXHAUSTED: trying to allocate 3.0GiB")
        >>> print(out_of_memory_message(error, batch_size=64, accumulate=1, bytes_in_use=2**30))
        out of memory: 3.22 GB more than the 1.07 GB in use were requested, so at most 16 of 64
        examples would fit. Use --batch-size 16 --accumulate 4, which makes the same updates
    """
    if batch_size is None or batch_size < 2:
        return (
            "out of memory: the batch cannot be smaller. Use shorter sequences, --precision "
            "mixed_bfloat16, or a smaller model"
        )
    in_use = _gpu_bytes_in_use() if bytes_in_use is None else bytes_in_use
    requested = _requested_bytes(str(error))
    parts, cause = 2, f"{batch_size} {unit} at once were too many"
    if in_use and requested:
        bound = batch_size * in_use // (in_use + requested)
        cause = (
            f"{requested / 1e9:.2f} GB more than the {in_use / 1e9:.2f} GB in use were requested, "
            f"so at most {bound} of {batch_size} {unit} would fit"
        )
        while batch_size // parts > max(bound, 1):
            parts *= 2
    smaller = max(batch_size // parts, 1)
    if accumulate is None:
        remedy = f"Use {option} {smaller} with a lower learning rate"
    else:
        parts = -(-batch_size // smaller)
        remedy = (
            f"Use {option} {smaller} --accumulate {accumulate * parts}, "
            "which makes the same updates"
        )
    return f"out of memory: {cause}. {remedy}"


def _requested_bytes(message: str) -> int | None:
    """Returns the size of the failed allocation from TensorFlow's or XLA's message."""
    amount = re.search(r"allocate (\d+(?:\.\d+)?) ?(KiB|MiB|GiB)?", message)
    if amount:
        return int(float(amount[1]) * _UNITS[amount[2] or ""])
    tensor = re.search(r"tensor with shape ?\[([\d,]*)\] and type (\w+)", message)
    if tensor and tensor[2] in _BYTES:
        return math.prod(int(size) for size in tensor[1].split(",") if size) * _BYTES[tensor[2]]
    return None


def _gpu_bytes_in_use() -> int | None:
    """Returns the peak of TensorFlow's allocations on its first GPU; None without a GPU."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
