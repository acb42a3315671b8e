"""Batches texts, or pairs of texts, with one score each."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.text.classification import TextBatches
from keras_transformers.data.text.examples import Examples

__all__ = ["ScoredTextBatches"]


class ScoredTextBatches(TextBatches):
    """Batches of (inputs, {"score": float32 (batch,)}); see `TextBatches`.

    Raises:
        ValueError: there are no examples, the batch size is below 1, or a label is not a number.
    """

    def targets(self, examples: Examples) -> dict[str, Any]:
        """Returns model output name -> targets (examples,)."""
        return {"score": tf.constant(scores(examples))}

    def counts(self, examples: Examples) -> None:
        """Returns None: scores are no classes."""


def scores(examples: Examples) -> np.ndarray:
    """Returns the labels as numbers: float32 (examples,).

    Raises:
        ValueError: there are no labels, or one is not a finite number.
    """
    if examples.labels is None:
        raise ValueError(f"{examples.source}: examples without labels have no scores")
    return np.array([_number(examples, label) for label in examples.labels], np.float32)


def _number(examples: Examples, label: str) -> float:
    try:
        value = float(label)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ValueError(f"{examples.source}: label {label!r}, expected a finite number")
    return value
