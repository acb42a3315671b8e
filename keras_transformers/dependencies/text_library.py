"""Imports tensorflow-text, which nothing else here does, and does without it where it is missing.

It has wheels for a TensorFlow months after that TensorFlow's own, for fewer systems, and none of
them loads into another TensorFlow. `tokenizers.text_ops` has the same tokenizers without it.
"""

import functools
import importlib.util
import logging
from pathlib import Path
from typing import Any

_NAME = "tensorflow_text"
_logger = logging.getLogger(__name__)


@functools.cache
def tensorflow_text() -> Any | None:
    """Returns the package; None where it is missing or does not load into this TensorFlow."""
    return _attempt(_import) if register_ops() else None


def _import() -> Any:
    import tensorflow_text

    return tensorflow_text


@functools.cache
def register_ops() -> bool:
    """Registers tensorflow-text's ops without its Python package, which imports Keras.

    Returns:
        Whether they are there; see `tensorflow_text`.
    """
    import tensorflow as tf

    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.origin is None:
        return False
    libraries = sorted(Path(spec.origin).parent.glob("python/ops/_*.so"))
    return _attempt(lambda: [tf.load_op_library(str(library)) for library in libraries]) is not None


def _attempt(load: Any) -> Any | None:
    import tensorflow as tf

    try:
        return load()
    except (ImportError, tf.errors.OpError) as error:
        _logger.warning(
            "tensorflow-text does not load into TensorFlow %s (%.200s): texts are tokenized by "
            "TensorFlow's own ops, more slowly, with the same tokens; install the tensorflow-text "
            "of this TensorFlow, if there is one",
            tf.__version__,
            str(error).splitlines()[0],
        )
        return None
