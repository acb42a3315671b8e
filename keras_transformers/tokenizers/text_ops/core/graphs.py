"""Runs methods in graphs of their own: one by one, their many small ops take ten times as long."""

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

Method = TypeVar("Method", bound=Callable[..., Any])


def in_graph(method: Method) -> Method:
    """Makes a method of one tensor, of any number of rows, trace its graph once for each object."""
    function: Any = tf.function(method, autograph=False, reduce_retracing=True)
    return function
