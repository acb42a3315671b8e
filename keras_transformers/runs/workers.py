"""Processes that train together: which one writes files, and how they wait for each other."""

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
    """Returns whether this process writes the files of its training; True if it trains alone."""
    cluster = clusters.from_environment()
    return cluster is None or cluster.worker_index == 0


def wait_for_all() -> None:
    """Waits until all workers are here; returns at once if there is only one."""
    cluster = clusters.from_environment()
    if cluster is not None and len(cluster.workers) > 1:
        create("multi_worker").reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)


def leave_together() -> None:
    """Waits at the end of a program until all workers are here.

    The chief still writes and exports when the others have nothing left to do. If it fails then, or
    is told to stop, they must not have exited with success: a scheduler would restart the chief
    alone, and it would wait for the others forever.
    """
    wait_for_all()
    with preemption.others_may_be_gone():  # the first to leave cuts off those still waiting
        wait_for_all()


def chief_first(make: Callable[[], T]) -> T:
    """Returns `make()`, called by the chief first; the others then find the files it wrote."""
    if is_chief():
        made = make()
        wait_for_all()
        return made
    wait_for_all()
    return make()


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads weights after the chief has written them; all workers must see the file's folder."""
    wait_for_all()
    model.load_weights(Path(path))
