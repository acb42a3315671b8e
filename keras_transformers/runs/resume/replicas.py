"""Reads and writes the variables of a model that several replicas or workers train."""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import ml_dtypes
import numpy as np
from keras import Variable

from keras_transformers.runs.preemption import others_may_be_gone


class Replicas:
    """Reads and writes variables of the one or more replicas that train a model in step.

    Most variables are equal on all replicas. Some differ, and are only combined when they are read:
    the sums of metrics, and moving means of batch normalization. They are read and written replica
    by replica, because their sum alone would not restore the same bits.

    A method marked "collective" must be called by all workers at the same point.

    Args:
        model: a model, built under its `tf.distribute` strategy if it has one.
    """

    def __init__(self, model: keras.Model) -> None:
        # A model has a strategy only on TensorFlow.
        self._strategy: Any = getattr(model, "distribute_strategy", None)
        self.number: int = self._strategy.num_replicas_in_sync if self._strategy else 1
        self._gathers: dict[tuple[int, ...], Any] = {}  # traced once for the same variables
        self.several_workers = self.number > 1 and _num_workers(self._strategy) > 1

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return not self.several_workers or bool(self._strategy.extended.should_checkpoint)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the scope in which to create variables."""
        return self._strategy.scope() if self._strategy else contextlib.nullcontext()

    def of_chief(self, value: int) -> int:
        """Returns the chief's `value`; collective."""
        return int(self._sum(value, True)) if self.several_workers else value

    def any_worker(self, flag: bool) -> bool:
        """Returns whether `flag` is true on any worker; collective."""
        return int(self._sum(int(flag), False)) > 0 if self.several_workers else flag

    def wait_to_leave(self) -> None:
        """Waits until all workers are here or gone; collective, and the last such call.

        The first process to end may interrupt the others in the previous operation. They need
        nothing from it, so they ignore the error.
        """
        with others_may_be_gone():
            self.any_worker(False)

    @functools.cached_property
    def _sum(self) -> Any:
        """Sums an integer over all replicas, or takes the value of the chief's first replica."""
        import tensorflow as tf

        def on_replica(value: tf.Tensor, of_chief: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(of_chief & (replica > 0), tf.constant(0, tf.int64), value)

        @tf.function(
            input_signature=[tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.bool)],
            autograph=False,
        )
        def total(value: tf.Tensor, of_chief: tf.Tensor) -> tf.Tensor:
            of_each = self._strategy.run(on_replica, args=(value, of_chief))
            return self._strategy.reduce("SUM", of_each, axis=None)

        return total

    def is_apart(self, variable: Variable) -> bool:
        """Returns whether each replica has its own value."""
        if self.number == 1 or variable.synchronization != "on_read":
            return False
        import tensorflow as tf

        return isinstance(variable.value, tf.distribute.DistributedValues)

    def gather(self, variables: Iterable[Variable]) -> dict[int, np.ndarray]:
        """Returns the values (replicas, ...) of variables that are apart, by id; collective."""
        apart = tuple(variable for variable in variables if self.is_apart(variable))
        if not apart:
            return {}
        key = tuple(map(id, apart))
        if key not in self._gathers:
            self._gathers[key] = self._gather_function(apart)
        arrays = self._gathers[key]()
        return {id(variable): value.numpy() for variable, value in zip(apart, arrays, strict=True)}

    def _gather_function(self, variables: Sequence[Variable]) -> Any:
        import tensorflow as tf

        def on_replica() -> list[tf.Tensor]:
            return [tf.expand_dims(tf.identity(variable.value), 0) for variable in variables]

        @tf.function(autograph=False)
        def gather() -> list[tf.Tensor]:
            return [self._strategy.gather(part, axis=0) for part in self._strategy.run(on_replica)]

        return gather

    def assign(self, variables: Sequence[Variable], arrays: Iterable[np.ndarray]) -> None:
        """Restores values, replica by replica for variables that are apart."""
        apart = []
        for variable, array in zip(variables, arrays, strict=True):
            array = _typed(array, variable.dtype)
            if self.is_apart(variable):
                apart.append((variable, array))
            else:
                variable.assign(array)
        if apart:
            self._assign_apart(apart)

    def _assign_apart(self, pairs: Sequence[tuple[Variable, np.ndarray]]) -> None:
        import tensorflow as tf

        def on_replica() -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            for variable, array in pairs:
                variable.value.assign(tf.constant(array)[replica])

        tf.function(lambda: self._strategy.run(on_replica), autograph=False)()

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Returns the shape of what is saved for a variable."""
        apart = (self.number,) if self.is_apart(variable) else ()
        return (*apart, *(int(size) for size in variable.shape))


def values(variables: Iterable[Variable], apart: dict[int, np.ndarray]) -> Iterator[np.ndarray]:
    """Yields the variables' values, those in `apart` as `Replicas.gather` returned them."""
    for variable in variables:
        array = apart.get(id(variable))
        yield np.asarray(variable.numpy()) if array is None else array


def _num_workers(strategy: Any) -> int:
    """Returns how many processes run the program; one process drives all hosts of a TPU."""
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    jobs = strategy.cluster_resolver.cluster_spec().as_dict()
    return sum(len(jobs.get(job, ())) for job in ("chief", "worker"))


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns an array with the type it had before `snapshots` wrote it as bytes."""
    return array.view(getattr(ml_dtypes, dtype)) if array.dtype.kind == "V" else array
