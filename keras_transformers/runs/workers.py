"""Coordinates processes that train together: which one writes files, and when they wait."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import keras
import tensorflow as tf

from keras_transformers.runs import clusters, preemption
from keras_transformers.runs.options import Scaling
from keras_transformers.runs.weights_files import read_weights
from keras_transformers.training.strategies import create

__all__ = ["chief_first", "is_chief", "load_weights", "wait_for_all"]

T = TypeVar("T")


def begin_strategy(config: Scaling) -> None:
    """Joins the other workers and sets the precision, before TensorFlow does any work.

    From then on the process ends with status 75 if it gets SIGTERM or another worker is gone; see
    `preemption`.
    """
    if config.strategy == "multi_worker":
        clusters.join(config.workers, config.worker_index)
        preemption.leave_with_the_others()
    elif config.workers or config.worker_index is not None:
        raise ValueError(
            f"--workers and --worker-index are for --strategy multi_worker, not {config.strategy}"
        )
    elif (cluster := clusters.from_environment()) and len(cluster.workers) > 1:
        raise ValueError(
            f"{clusters.VARIABLE} names {len(cluster.workers)} workers, and each would train "
            f"alone under --strategy {config.strategy}: pass --strategy multi_worker, or unset it"
        )
    create(config.strategy)
    # Not earlier: while TensorFlow waits for the other workers, Python handles no signals.
    preemption.leave_on_termination()
    keras.config.set_dtype_policy(config.precision)


def is_chief() -> bool:
    """Returns whether this process writes the files of its training; True if it trains alone."""
    cluster = clusters.from_environment()
    return cluster is None or cluster.worker_index == 0


def wait_for_all() -> None:
    """Waits until all workers get here; returns at once if there is only one."""
    cluster = clusters.from_environment()
    if cluster is not None and len(cluster.workers) > 1:
        create("multi_worker").reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)


def leave_together() -> None:
    """Waits at the end of a program until all workers get here.

    The chief still writes and exports when the others have nothing left to do. If it fails then, or
    is asked to stop, they must not have exited successfully: a scheduler would restart only the
    chief, and it would wait for the others forever.
    """
    wait_for_all()
    with preemption.others_may_be_gone():  # the first to leave interrupts the others
        wait_for_all()


def chief_first(make: Callable[[], T]) -> T:
    """Returns `make()`, called by the chief first; the others then find the files it wrote."""
    if is_chief():
        result = make()
        wait_for_all()
        return result
    wait_for_all()
    return make()


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads weights after the chief has written them; all workers must see the file's folder.

    Raises:
        WeightsFileError: the file is missing, damaged or belongs to another model.
    """
    wait_for_all()
    read_weights(model, Path(path))
