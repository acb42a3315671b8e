"""The processes that train together: which of them writes, and how they wait for each other."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import keras
import tensorflow as tf

from keras_transformers.runs import clusters, preemption
from keras_transformers.training.strategies import create

__all__ = ["chief_first", "is_chief", "load_weights", "wait_for_all"]

T = TypeVar("T")


def is_chief() -> bool:
    """Whether this process is the one of its training that writes files; True for a lone one."""
    cluster = clusters.from_environment()
    return cluster is None or cluster.worker_index == 0


def wait_for_all() -> None:
    """Returns when all workers are here; at once where there is only one."""
    cluster = clusters.from_environment()
    if cluster is not None and len(cluster.workers) > 1:
        create("multi_worker").reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)


def leave_together() -> None:
    """Returns when all workers are here, or have left from here: the last thing in a program.

    The chief writes and exports while the others have nothing left to do. If it fails then, or is
    told to stop, they must not have ended well before: a scheduler would restart it alone, and it
    would wait for the others forever.
    """
    wait_for_all()
    with preemption.others_may_be_gone():  # the first to leave would cut off who is still waiting
        wait_for_all()


def chief_first(make: Callable[[], T]) -> T:
    """What `make` returns; the chief calls it before the others do, who find what it wrote."""
    if is_chief():
        made = make()
        wait_for_all()
        return made
    wait_for_all()
    return make()


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads a file that the chief wrote, once it has; all workers must see its folder."""
    wait_for_all()
    model.load_weights(Path(path))
