"""Figures of a run beside its loss: gradient norm, learning rate, tokens a second, utilisation.

They enter Keras' logs, and so the history, TensorBoard and the JSON lines alike.
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
from keras import ops

from keras_transformers.private_api import (
    gradient_clipping,
    profiled_batches,
    set_first_batch,
    set_gradient_clipping,
    skips_gradient_sum,
)

_LOGGER = logging.getLogger(__name__)


class Telemetry(keras.callbacks.Callback):
    """Adds figures to the logs, every so many steps and at the end of each epoch.

    Put it in front of the callbacks that write logs. The figures:

    - `gradient_norm`: of the newest update, over all weights and replicas, before it is clipped;
    - `learning_rate`: of the update that comes next;
    - `loss_scale`: the newest, where the optimizer has one (float16);
    - `tokens_per_second`: of all replicas, where `tokens_per_step` is given;
    - `mfu`: model FLOP utilisation, 0 to 1, where `flops_per_step` and `peak_flops` are given:
      FLOPs per update, times updates per second, by the peak of all replicas (Chowdhery et al.
      2022, "PaLM", appendix B).

    Rates are those since the figures before, or of the epoch; the first step of `fit`, which
    compiles, is left out, and so is validation. Waiting for data counts.

    The norm is computed on the device in the step itself, which reads the gradients once more, and
    kept in a variable there. It is fetched when it is logged and at no other step; Keras waits for
    each step's loss anyway. It is left out with backends other than TensorFlow, with gradients that
    are sparse (`keras.optimizers.SGD` on embeddings), and on several replicas without
    `distributed.prepare`.

    Args:
        every: steps between figures.
        tokens_per_step: real tokens of an update, of all replicas; a mean where batches differ.
        flops_per_step: floating-point operations of such an update, see
            `keras_transformers.inspection.training_flops`.
        peak_flops: the most a replica's accelerator does in a second, as its maker states it for
            the precision used, without sparsity: 312e12 for an A100 with bfloat16, for one.

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
                raise ValueError(f"{name} is {value}, must be above 0")
        self.every = every
        self.tokens_per_step = tokens_per_step
        self.flops_per_step = flops_per_step
        self.peak_flops = peak_flops
        self._gradient_norm: Callable[[], float | None] = _unknown

    def set_model(self, model: keras.Model) -> None:
        """Has the optimizer keep the norm, unless it does already."""
        super().set_model(model)
        self._gradient_norm = watch_gradient_norm(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Says what utilisation will be a share of."""
        self._is_first_batch = True
        if self.peak_flops and self.flops_per_step:
            _LOGGER.info(
                "mfu: %.4g FLOPs an update, as a share of %d x %.4g FLOP/s",
                self.flops_per_step,
                _num_replicas(self.model),
                self.peak_flops,
            )
        elif self.peak_flops:
            _LOGGER.info("no mfu: the FLOPs of this model's updates are not counted")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the epoch's clock."""
        self._steps = 0
        self._epoch_mark = self._mark = self._now = (monotonic(), 0)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figures, when it is time."""
        before, self._steps = self._steps, batch + 1
        self._now = (monotonic(), self._steps)
        if self._is_first_batch:
            self._is_first_batch = False
            self._epoch_mark = self._mark = self._now
        if logs is not None and is_due(before, self._steps, self.every):
            logs.update(self._figures(self._mark))
            self._mark = self._now

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figures; the rates are those of the epoch."""
        if logs is not None:
            logs.update(self._figures(self._epoch_mark))

    def _figures(self, since: tuple[float, int]) -> dict[str, float]:
        optimizer = self.model.optimizer
        figures = {
            "gradient_norm": self._gradient_norm(),
            "learning_rate": _number(optimizer.learning_rate),
            "loss_scale": _number(getattr(optimizer, "dynamic_scale", None)),
        }
        seconds, steps = self._now[0] - since[0], self._now[1] - since[1]
        # Of a single step, which compiled, there is no rate; a key of the history must stay.
        pace = steps / seconds if steps and seconds > 0 else math.nan
        if self.tokens_per_step:
            figures["tokens_per_second"] = self.tokens_per_step * pace
        if self.flops_per_step and self.peak_flops:
            peak = self.peak_flops * _num_replicas(self.model)
            figures["mfu"] = self.flops_per_step * pace / peak
        return {name: value for name, value in figures.items() if value is not None}


class TensorBoard(keras.callbacks.TensorBoard):
    """Keras' callback with the steps of the training: Keras counts those of each `fit` from 0.

    So the curves of a run that goes on, or has several phases, stand behind each other. The
    arguments are Keras'; the steps to profile are counted from the start of each `fit`.
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

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins behind the updates that are done."""
        super().on_train_begin(logs)
        done = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        set_first_batch(self, done, self._profiled)


class JsonLines(keras.callbacks.Callback):
    """Writes the logs as JSON, a line for each of some steps and for each epoch.

    Every line has `time` (UTC), `event` ("begin", "step", "epoch" or "end"), and from the first
    step on `epoch` from 1 and `step`, the optimizer's count of updates; "begin" has `facts`, the
    others the logs. Numbers that are not finite are null. A file is appended to, line by line. On
    standard output there may be other lines between them; those of JSON start with "{".

    Args:
        path: a file; "stdout" is standard output.
        every: steps between lines.
        facts: what the first line tells of the run.

    Raises:
        OSError: the file cannot be written to.
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
            with open(self.path, "a"):  # now, not when training begins
                pass

    def on_train_begin(self, logs: Any = None) -> None:
        """Writes the facts."""
        self._epoch = 0  # of a run that is done already no epoch begins
        self._write("begin", {"parameters": self.model.count_params()} | self.facts)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch."""
        self._epoch = epoch + 1
        self._steps = 0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes a step's logs, when it is time."""
        before, self._steps = self._steps, batch + 1
        if is_due(before, self._steps, self.every):
            self._write("step", self._place() | dict(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's logs."""
        self._write("epoch", self._place() | dict(logs or {}))

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the last epoch's logs once more: a file without this line was cut short."""
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
    """Whether a multiple of `every` lies in the steps after `before` up to `after`."""
    return after // every > before // every


def watch_gradient_norm(model: keras.Model) -> Callable[[], float | None]:
    """Has a compiled model's optimizer keep the norm of its newest gradient.

    It is what the optimizer is given, before it clips; under a strategy, where
    `distributed.prepare` sums the gradients before that, the norm of the sum over replicas.

    Returns:
        How to read it, a function without arguments: the norm; NaN before the first update; None
        where it is not known.
    """
    if keras.backend.backend() != "tensorflow":
        return _unknown
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if _num_replicas(model) > 1 and not skips_gradient_sum(optimizer):
        return _unknown  # not prepared: each replica's optimizer has its own gradient
    clip = gradient_clipping(optimizer)
    if not isinstance(clip, _KeepsNorm):
        clip = _KeepsNorm(clip, model.distribute_strategy)
        set_gradient_clipping(optimizer, clip)
        model.train_function = None  # one that an earlier `fit` made
    return clip.norm


class _KeepsNorm:
    """An optimizer's `_clip_gradients` that keeps the norm of what it is given on the device."""

    def __init__(self, clip: Callable[[Any], Any], strategy: Any) -> None:
        import tensorflow as tf

        self._clip = clip
        self._is_known = True
        with strategy.scope():
            # Each replica writes its own copy, all of them alike: nothing is communicated.
            self._variable = tf.Variable(
                math.nan,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def __call__(self, gradients: Sequence[Any]) -> Any:
        import tensorflow as tf

        # The parts of a sparse gradient may be of one row: their sum has the norm, not they.
        self._is_known = not any(isinstance(g, tf.IndexedSlices) for g in gradients)
        if self._is_known:
            squares = [tf.reduce_sum(tf.square(tf.cast(g, tf.float32))) for g in gradients]
            self._variable.assign(tf.sqrt(tf.add_n(squares)))
        return self._clip(gradients)

    def norm(self) -> float | None:
        """The newest; NaN before the first update, None where gradients are sparse."""
        return float(self._variable.read_value()) if self._is_known else None


def _unknown() -> None:
    return None


def _num_replicas(model: keras.Model) -> int:
    strategy = getattr(model, "distribute_strategy", None)
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)


def _number(value: Any) -> float | None:
    return None if value is None else float(ops.convert_to_numpy(value))


def _json(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
