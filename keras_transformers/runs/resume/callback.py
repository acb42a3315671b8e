"""Resumes a training that was stopped at any moment, as if nothing had happened."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import keras

from keras_transformers.dependencies.private_api import set_initial_epoch
from keras_transformers.runs.guardrails import non_finite_weights
from keras_transformers.runs.preemption import TerminationNotice
from keras_transformers.runs.resume.callback_states import Muted, Stateful, stateful
from keras_transformers.runs.resume.folder_lock import lock_folder
from keras_transformers.runs.resume.replicas import Replicas
from keras_transformers.runs.resume.snapshots import CheckpointError, Snapshots, step_of
from keras_transformers.runs.resume.state import Position, State, arrays, check_shapes, restore
from keras_transformers.runs.telemetry import plain

__all__ = ["Position", "Resume", "Stateful"]

logger = logging.getLogger(__name__)


class Resume(keras.callbacks.Callback):
    """Saves checkpoints after epochs, and within them, from which a training can resume.

    A checkpoint holds the model's weights and random states, the optimizer's variables (moments,
    averages of weights, learning rate, number of updates, loss scale), the epoch's metrics so far,
    the position in the data, the states of the other callbacks (`Stateful` ones, and Keras' own),
    and the figures of all epochs. If operations are deterministic, as after
    `tf.config.experimental.enable_op_determinism()`, a resumed training ends with the same weights
    and figures, bit for bit, as one that was never stopped: `benchmarks/kill_and_resume.py` shows
    it.

        resume = Resume("run/checkpoints", every=500)
        callbacks = [SaveWeights("best.weights.h5", monitor="val_accuracy"), resume]
        position = resume.restore(model, callbacks)
        model.fit(
            batches.repeat().skip(position.step), steps_per_epoch=steps,
            initial_epoch=position.epoch, epochs=10, callbacks=callbacks, ...
        )

    The dataset is created again and its first `position.step` batches are skipped, so its order
    must depend only on its seed. In an interrupted epoch `fit` counts through the batches that are
    done without computing, reading data or calling the other callbacks. This keeps the batch
    numbers, the progress bar and the epoch's length correct.

    After SIGTERM it saves at the end of the batch (of the epoch, during validation) and ends the
    program with status 75; see `preemption`. Weights that are not finite are never saved. With
    several workers, the chief writes and all read, so they must share the folder's storage. Any of
    them may get the signal; all stop after the same batch. A second process that tries to write to
    the folder gets an error.

    Args:
        folder: a folder for the checkpoints only.
        every: batches between checkpoints within an epoch, on TensorFlow only; None writes
            checkpoints only after epochs.
        minutes: longest time between checkpoints, also on TensorFlow only; None for no limit.
        keep: how many checkpoints to keep.
        started: `time.monotonic()` when this process began its work; by default, now.

    Attributes:
        position: how far the training has got.
        epochs: a dict for each finished epoch: `epoch`, its number from 1, and Keras' logs.

    Raises:
        ValueError: `every` or `keep` is below 1, `minutes` is not above 0, or one of the first and
            last is set with another backend.
        CheckpointError: from `fit`, if a checkpoint cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int | None = None,
        minutes: float | None = None,
        keep: int = 2,
        started: float | None = None,
    ) -> None:
        super().__init__()
        if minutes is not None and not minutes > 0:
            raise ValueError(f"minutes={minutes}: expected a number above 0, or None")
        if every is not None and every < 1:
            raise ValueError(
                f"every={every}: expected 1 or more batches, or None (only after epochs)"
            )
        if (every or minutes) and keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"every={every}, minutes={minutes}: saving within an epoch needs TensorFlow; leave "
                "both out"
            )
        self.every = every
        self._patience_s = None if minutes is None else 60 * minutes
        self._saved_at = 0.0  # by time.monotonic
        self.position = Position()
        self.epochs: list[dict[str, float]] = []
        self._earlier_s = 0.0  # the training's time up to the checkpoint it continues from
        self._started = time.monotonic() if started is None else started
        self._snapshots = Snapshots(folder, keep=keep)
        self._notice = TerminationNotice()
        self._callbacks: list[tuple[str, Stateful]] = []
        self._lock: Any = None
        self._replicas: Any = None
        self._restored: Any = None  # a State until all of it is restored
        self._others: list[keras.callbacks.Callback] = []
        self._rate: float | None = None  # the restored learning rate; None under a schedule
        self._undo: Callable[[], None] = _nothing  # ends `_pass_by`

    @property
    def seconds(self) -> float:
        """Seconds the training has taken, over all of its processes; lost work does not count."""
        return self._earlier_s + time.monotonic() - self._started

    def restore(
        self, model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]
    ) -> Position:
        """Restores the newest undamaged checkpoint; call it before `fit`.

        Args:
            model: built and compiled as when the training began.
            callbacks: all callbacks of `fit`, with this one last.

        Returns:
            Where to resume; zeros if there is no checkpoint.

        Raises:
            CheckpointError: the folder cannot be written.
            FolderInUseError: another process is writing to the folder.
            ValueError: the checkpoint has another model, optimizer, number of replicas or other
                callbacks; all checkpoints are damaged; this callback is not the last; the model is
                not built; or a worker does not see the chief's checkpoint.
        """
        if not callbacks or callbacks[-1] is not self:
            raise ValueError("Resume must be the last of the callbacks: it saves their states")
        self._restore(model, callbacks)
        return self.position

    def _restore(self, model: keras.Model, callbacks: Sequence[Any]) -> None:
        if not model.built:
            raise ValueError(f"model {model.name!r} has no variables yet: build it first")
        states = ((type(callback).__name__, stateful(callback)) for callback in callbacks)
        self._callbacks = [(name, state) for name, state in states if state is not None]
        self._others = [callback for callback in callbacks if callback is not self]
        self._replicas = Replicas(model)
        path = self._agreed_checkpoint()
        if not model.optimizer.built:
            with self._replicas.scope():
                model.optimizer.build(model.trainable_variables)
        if path is None:
            return
        self._restored = restore(path, model, self._callbacks, self._replicas)
        rate = model.optimizer.learning_rate
        if isinstance(rate, keras.Variable):
            self._rate = float(keras.ops.convert_to_numpy(rate))
        self.position, self.epochs = self._restored.position, self._restored.epochs
        self._earlier_s = self._restored.seconds
        logger.info(
            "resuming after %d epochs and %d batches", self.position.epoch, self.position.batch
        )

    def _agreed_checkpoint(self) -> Path | None:
        """Returns the newest checkpoint that the chief finds, for all workers to restore."""
        path, replicas = None, self._replicas
        if replicas.is_chief:
            self._snapshots.check_writable()
            self._lock = lock_folder(self._snapshots.folder)
            path = self._snapshots.newest()
        if not replicas.several_workers:
            return path
        step = replicas.of_chief(-1 if path is None else step_of(path))
        if step < 0:
            return None
        path = next((path for path in self._snapshots.paths() if step_of(path) == step), None)
        if replicas.any_worker(path is None):
            raise ValueError(
                f"{self._snapshots.folder}: not all workers see the chief's checkpoint of step "
                f"{step}: use a folder on shared storage"
            )
        return path

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Restores the other callbacks and the history."""
        if self._replicas is None:
            raise ValueError("call Resume.restore(model, callbacks) before fit")
        self._notice.listen()
        self._saved_at = time.monotonic()
        if self._restored is None:
            return
        for (_, callback), state in zip(self._callbacks, self._restored.callbacks, strict=True):
            callback.load_state(state)
        self._restore_rate()
        names = dict.fromkeys(name for epoch in self.epochs for name in epoch if name != "epoch")
        self.model.history.history = {
            name: [epoch[name] for epoch in self.epochs if name in epoch] for name in names
        }
        if self._restored.is_finished:  # a callback stopped it: no epoch is left
            set_initial_epoch(self.model, self.params["epochs"])

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Prepares to count through the batches that are done."""
        if self._restored is None:
            self.position = Position(epoch, 0, self.position.step)
            return
        if epoch != self.position.epoch:
            raise ValueError(
                f"fit began with epoch {epoch}, the checkpoint is of epoch {self.position.epoch}: "
                "pass initial_epoch=position.epoch"
            )
        self.model.history.epoch = list(range(epoch))
        if self.position.batch:
            self._restore_rate()
            self._pass_by()
        else:
            self._restored = None

    def _restore_rate(self) -> None:
        """Undoes what other callbacks set at the beginning of a training or epoch that had begun.

        LearningRateScheduler, for one, may lower the learning rate at the beginning of each epoch.
        """
        if self._rate is not None:
            self.model.optimizer.learning_rate = self._rate

    def _pass_by(self) -> None:
        """Makes `fit` skip the batches that are done; by itself it always starts at the first."""
        model, train_function, muted = self.model, self.model.train_function, Muted(self._others)

        def undo() -> None:
            model.train_function = train_function
            muted.undo()

        self._undo = undo
        model.train_function = self._done_batch

    def _done_batch(self, iterator: Any) -> dict[str, float]:
        """Replaces Keras' `train_function`: returns the logs of the last batch that was done."""
        state, model = self._restored, self.model
        if state.metrics:
            if len(model.metrics_variables) != len(state.metrics):
                # Without a strategy Keras makes them when it traces the first step: too late here.
                import tensorflow as tf

                tf.function(model.train_step).get_concrete_function(iterator.element_spec)
            variables = model.metrics_variables
            shapes = [array.shape for array in state.metrics]
            check_shapes(self._snapshots.folder, shapes, variables, self._replicas)
            self._replicas.assign(variables, state.metrics)
            state.metrics = []
            # Keras expects the names of its own metrics, without what other callbacks added.
            names = model.get_metrics_result()
            if all(name in state.logs for name in names):
                state.logs = {name: state.logs[name] for name in names}
        return state.logs

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts the batch, and saves if a checkpoint is due."""
        epoch, before, step = self.position
        if self._restored is not None:
            if batch + 1 >= before:
                self._undo()
                self._restored = None
            return
        # With `steps_per_execution` above 1, `batch` is the last of those that ran together.
        self.position = Position(epoch, batch + 1, step + batch + 1 - before)
        must_stop = self._must_stop()
        if self.model.stop_training:  # the end of the epoch is next
            return
        if must_stop or self._is_due(step):
            self._save(logs)
        if must_stop:
            self._leave()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves a checkpoint."""
        self.epochs.append({"epoch": epoch + 1} | _figures(logs))
        self.position = Position(epoch + 1, 0, self.position.step)
        self._save(None)
        if self._must_stop():
            self._leave()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Leaves the process and the model as they were before training."""
        self._replicas.wait_to_leave()
        self._notice.stop()
        if self._restored is not None:  # no epoch was left
            self.model.history.epoch = list(range(self.position.epoch))
            set_initial_epoch(self.model, None)
            self._restored = None

    def _save(self, logs: Mapping[str, Any] | None) -> None:
        """Writes a checkpoint; all workers learn whether it succeeded before they continue."""
        spoiled = non_finite_weights(self.model)
        if spoiled:  # the next batch's loss will stop training; an earlier checkpoint stays
            logger.warning(
                "not saved: %d weights (%s, ...) are not finite", len(spoiled), spoiled[0]
            )
            return
        is_finished = self.position.batch == 0 and bool(self.model.stop_training)
        state = State(self.position, is_finished, self.epochs, _figures(logs), self.seconds)
        contents = arrays(state, self.model, self._callbacks, self._replicas)
        error = None
        if self._replicas.is_chief:
            try:
                self._snapshots.write(self.position.step, contents)
            except CheckpointError as caught:
                error = caught
        self._saved_at = time.monotonic()
        if self._replicas.any_worker(error is not None):
            self._replicas.wait_to_leave()
            raise error or CheckpointError("the chief could not write the checkpoint: see its log")

    def _is_due(self, step: int) -> bool:
        """Returns whether to save; `step` is the number of batches before the last ones."""
        if self.every and self.position.step // self.every > step // self.every:
            return True
        if self._patience_s is None:
            return False
        return self._replicas.any_worker(time.monotonic() - self._saved_at >= self._patience_s)

    def _must_stop(self) -> bool:
        """Returns whether any worker got SIGTERM."""
        return self._replicas.any_worker(self._notice.came)

    def _leave(self) -> NoReturn:
        logger.warning(
            "SIGTERM: stopped after %d epochs and %d batches",
            self.position.epoch,
            self.position.batch,
        )
        self._replicas.wait_to_leave()
        self._notice.obey()


def _nothing() -> None:
    pass


def _figures(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: plain(value) for name, value in (logs or {}).items()}
