"""Traces graphs, and says so where that takes long."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_transformers.collector import paused_collector

_SILENT_S = 3.0  # how long a call may seem to hang

_logger = logging.getLogger(__name__)


def traced(function: Callable[..., Any], *specs: Any, **named: Any) -> Callable[..., Any]:
    """Returns the graph of a function, for all calls to share.

    If tracing takes more than a few seconds, a warning in the log says what the first call waits
    for.

    Args:
        function: graph code.
        *specs: its inputs, in order.
        **named: its inputs by name.
    """
    notice = threading.Timer(
        _SILENT_S,
        _logger.warning,
        ("%s: the first call traces the graph, which later calls reuse", function.__qualname__),
    )
    notice.daemon = True
    notice.start()
    try:
        with paused_collector():
            graph: Callable[..., Any] = tf.function(
                function, autograph=False
            ).get_concrete_function(*specs, **named)
        return graph
    finally:
        notice.cancel()
