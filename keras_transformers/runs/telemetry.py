"""Logs figures besides the loss: gradient norm, learning rate, tokens per second, utilisation.

They are added to Keras' logs, so they reach the history, TensorBoard and the JSON lines.
"""

import datetime
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.dependencies.private_api import (
    gradient_clipping,
    profiled_batches,
    set_first_batch,
    set_gradient_clipping,
    skips_gradient_sum,
)
from keras_transformers.dependencies.untyped import Tensor

_LOGGER = logging.getLogger(__name__)


class Telemetry(keras.callbacks.Callback):
    """Adds figures to the logs, every few steps and at the end of each epoch.

    Put it before the callbacks that write logs. It adds:

    - `gradient_norm`: that of the newest update, over all weights and replicas, before clipping;
    - `learning_rate`: that of the next update;
    - `loss_scale`: the current one, if the optimizer has one (float16);
    - `tokens_per_second`: over all replicas, if `tokens_per_step` is set;
    - `mfu`: model FLOP utilisation, 0 to 1, if `flops_per_step` and `peak_flops` are set: FLOPs
      per update times updates per second, divided by the peak of all replicas (Chowdhery et al.
      2022, "PaLM", appendix B).

    Rates cover the time since the last figures, or the epoch. They include the time spent waiting
    for data, but neither validation nor the first step of `fit`, which compiles.

    The step itself computes the norm on the device, which reads the gradients once more. The norm
    is fetched only when it is logged; Keras waits for each step's loss anyway. There is no norm
    with backends other than TensorFlow, with sparse gradients (`keras.optimizers.SGD` on
    embeddings), or on several replicas without `distributed.prepare`.

    Args:
        every: steps between figures.
        tokens_per_step: real tokens per update, over all replicas; a mean if batches differ.
        flops_per_step: floating-point operations per update; see
            `keras_transformers.inspection.training_flops`.
        peak_flops: peak operations per second of one replica's accelerator, as its maker states
            them for the precision used, without sparsity; 312e12 for an A100 with bfloat16.

    Raises:
        ValueError: a figure is not above 0.
    """

    def __init__(
        self,
        *,
        every: int = 100,
        tokens_per_step: float | None = None,
        flops_per_step: float | None = None,
        peak_flops: float | None = None,
    ) -> None:
        super().__init__()
        figures = {
            "every": every,
            "tokens_per_step": tokens_per_step,
            "flops_per_step": flops_per_step,
            "peak_flops": peak_flops,
        }
        for name, value in figures.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value}: must be above 0")
        self.every = every
        self.tokens_per_step = tokens_per_step
        self.flops_per_step = flops_per_step
        self.peak_flops = peak_flops
        self._gradient_norm: GradientNorm | None = None

    def set_model(self, model: keras.Model) -> None:
        """Makes the optimizer keep the gradient norm, unless it already does."""
        super().set_model(model)
        self._gradient_norm = watch_gradient_norm(model)

    def state(self) -> list[np.ndarray]:
        """Returns the newest gradient norm, for `runs.resume`: the next update may be far away."""
        return self._gradient_norm.state() if self._gradient_norm else []

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores what `state` returned."""
        if self._gradient_norm:
            self._gradient_norm.load_state(arrays)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Logs the peak that utilisation is measured against."""
        self._is_first_batch = True
        if self.peak_flops and self.flops_per_step:
            _LOGGER.info(
                "mfu: %.4g FLOPs per update, as a share of %d x %.4g FLOP/s",
                self.flops_per_step,
                _num_replicas(self.model),
                self.peak_flops,
            )
        elif self.peak_flops:
            _LOGGER.info("no mfu: the FLOPs of this model's updates are not counted")

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the epoch's clock."""
        self._steps = 0
        self._epoch_mark = self._mark = self._now = (monotonic(), 0)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figures if they are due."""
        before, self._steps = self._steps, batch + 1
        self._now = (monotonic(), self._steps)
        if self._is_first_batch:
            self._is_first_batch = False
            self._epoch_mark = self._mark = self._now
        if logs is not None and is_due(before, self._steps, self.every):
            logs.update(self._figures(self._mark))
            self._mark = self._now

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figures, with rates over the epoch."""
        if logs is not None:
            logs.update(self._figures(self._epoch_mark))

    def _figures(self, since: tuple[float, int]) -> dict[str, float]:
        optimizer = self.model.optimizer
        figures = {
            "gradient_norm": self._gradient_norm.value() if self._gradient_norm else None,
            "learning_rate": _number(optimizer.learning_rate),
            "loss_scale": _number(getattr(optimizer, "dynamic_scale", None)),
        }
        seconds, steps = self._now[0] - since[0], self._now[1] - since[1]
        # A single step, which compiled, gives no rate; NaN keeps the key in the history.
        pace = steps / seconds if steps and seconds > 0 else math.nan
        if self.tokens_per_step:
            figures["tokens_per_second"] = self.tokens_per_step * pace
        if self.flops_per_step and self.peak_flops:
            peak = self.peak_flops * _num_replicas(self.model)
            figures["mfu"] = self.flops_per_step * pace / peak
        return {name: value for name, value in figures.items() if value is not None}


class TensorBoard(keras.callbacks.TensorBoard):
    """Logs to TensorBoard like Keras' callback, but counts steps over the whole training.

    Keras counts from 0 in each `fit`, so the curves of a resumed run or of several phases would
    overlap. The steps to profile still count from the start of each `fit`. A metric of several
    numbers, with which Keras' callback fails, has a curve for each. See Keras for the arguments.
    """

    def __init__(
        self,
        log_dir: str,
        *,
        update_freq: int | str = "epoch",
        profile_batch: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__(log_dir, update_freq=update_freq, profile_batch=profile_batch)
        self._profiled = profiled_batches(self)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Starts counting after the updates that are done."""
        super().on_train_begin(logs)
        done = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        set_first_batch(self, done, self._profiled)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes a step's logs if they are due."""
        super().on_train_batch_end(batch, curves(logs))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's logs."""
        super().on_epoch_end(epoch, curves(logs))

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the logs of an evaluation."""
        super().on_test_end(curves(logs))


class JsonLines(keras.callbacks.Callback):
    """Writes the logs as lines of JSON, every few steps and after each epoch.

    Every line has `time` (UTC) and `event`: "begin", "step", "epoch" or "end". The "begin" line has
    `facts`; the others have `epoch` (from 1), `step` (the optimizer's number of updates) and the
    logs. Numbers that are not finite become null. Lines are appended to the file. On standard
    output, other lines may come between them; those of JSON start with "{".

    Args:
        path: a file, or "stdout" for standard output.
        every: steps between lines.
        facts: information about the run, for the first line.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: int = 100,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.path = os.fspath(path)
        self.every = every
        self.facts = dict(facts or {})
        if self.path != "stdout":
            with open(self.path, "a"):  # fail now, not when training begins
                pass

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the facts."""
        self._epoch = 0  # stays 0 if the run is already done
        self._write("begin", {"parameters": self.model.count_params()} | self.facts)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Remembers the epoch."""
        self._epoch = epoch + 1
        self._steps = 0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes a step's logs if they are due."""
        before, self._steps = self._steps, batch + 1
        if is_due(before, self._steps, self.every):
            self._write("step", self._place() | dict(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's logs."""
        self._write("epoch", self._place() | dict(logs or {}))

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the last epoch's logs once more; a file without this line is incomplete."""
        self._write("end", self._place() | dict(logs or {}))

    def _place(self) -> dict[str, Any]:
        step = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        return {"epoch": self._epoch, "step": step}

    def _write(self, event: str, figures: Mapping[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event} | {k: _json(v) for k, v in figures.items()}
        text = json.dumps(line, allow_nan=False) + "\n"
        if self.path == "stdout":
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text)


def is_due(before: int, after: int, every: int) -> bool:
    """Returns whether a multiple of `every` lies in the steps `before` + 1 to `after`."""
    return after // every > before // every


def watch_gradient_norm(model: keras.Model) -> "GradientNorm | None":
    """Makes a compiled model's optimizer store the norm of its newest gradient, before clipping.

    Under a strategy it is the norm of the sum over replicas, which `distributed.prepare` passes to
    the optimizer.

    Returns:
        What holds the norm; None if it is unknown.
    """
    if keras.backend.backend() != "tensorflow":
        return None
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if _num_replicas(model) > 1 and not skips_gradient_sum(optimizer):
        return None  # without `prepare` each replica's optimizer has its own gradient
    clip = gradient_clipping(optimizer)
    if not isinstance(clip, GradientNorm):
        clip = GradientNorm(clip, model)
        set_gradient_clipping(optimizer, clip)
        model.train_function = None  # traced by an earlier `fit`
    return clip


class GradientNorm:
    """Replaces an optimizer's `_clip_gradients`, and keeps the gradient norm on the device."""

    def __init__(self, clip: Callable[[list[Tensor]], list[Tensor]], model: keras.Model) -> None:
        import tensorflow as tf

        self._clip = clip
        self._is_known = True
        with model.distribute_strategy.scope():
            # Each replica writes the same value to its own copy, without communication.
            self._variable = tf.Variable(
                math.nan,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def __call__(self, gradients: list[Tensor]) -> list[Tensor]:
        """Stores the norm of the gradients, and clips them."""
        import tensorflow as tf

        # Parts of a sparse gradient may belong to one row, and would have to be summed first.
        self._is_known = not any(isinstance(g, tf.IndexedSlices) for g in gradients)
        if self._is_known:
            squares = [tf.reduce_sum(tf.square(tf.cast(g, tf.float32))) for g in gradients]
            self._variable.assign(tf.sqrt(tf.add_n(squares)))
        return self._clip(gradients)

    def value(self) -> float | None:
        """Returns the newest norm: NaN before the first update, None for sparse gradients."""
        return float(self._variable.read_value()) if self._is_known else None

    def state(self) -> list[np.ndarray]:
        """Returns the newest norm, and whether it is known."""
        return [np.asarray(self._variable.read_value()), np.array(self._is_known)]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores what `state` returned."""
        norm, is_known = arrays
        self._variable.assign(norm)
        self._is_known = bool(is_known)


def _num_replicas(model: keras.Model) -> int:
    strategy = getattr(model, "distribute_strategy", None)
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)


def _number(value: Any) -> float | None:
    return None if value is None else float(ops.convert_to_numpy(value))


def plain(value: float | Tensor) -> float | list[float]:
    """Returns a logged figure as a float, or as a list if the metric has several numbers."""
    if isinstance(value, float | int):
        return float(value)
    return np.asarray(ops.convert_to_numpy(value), float).tolist()


def curves(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns logs with one number per name: "f1/0", "f1/1" for a metric of two numbers."""
    curves: dict[str, float] = {}
    for name, value in (logs or {}).items():
        numbers = np.asarray(plain(value))
        if numbers.ndim:
            curves |= {f"{name}/{i}": float(number) for i, number in enumerate(numbers.flat)}
        else:
            curves[name] = float(numbers)
    return curves


def _json(value: Any) -> Any:
    """Returns a figure for JSON: None for a number that is not finite, lists for arrays."""
    if isinstance(value, list):
        return [_json(item) for item in value]
    if value is None or isinstance(value, str | int | dict):
        return value
    number = plain(value)
    if isinstance(number, list):
        return _json(number)
    return number if math.isfinite(number) else None
