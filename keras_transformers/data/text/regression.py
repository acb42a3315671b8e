"""Batches of texts, or pairs of texts, with one score each, that `model.fit` takes."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.text import classification
from keras_transformers.data.text.examples import Examples


def scores(examples: Examples) -> np.ndarray:
    """The labels as numbers: float32 (examples,).

    Raises:
        ValueError: there are none, or one is not a finite number.
    """
    if examples.labels is None:
        raise ValueError(f"{examples.source}: examples without labels have no scores")
    return np.array([_number(examples, label) for label in examples.labels], np.float32)


def dataset(
    examples: Examples,
    tokenizer: classification.Tokenizer,
    *,
    targets: bool,
    batch_size: int,
    max_sequence_length: int,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches of (inputs, {"score": float32 (batch,)}), or of inputs; else `classification`'s.

    Args:
        examples: what to batch.
        tokenizer: packs texts inside the graph.
        targets: whether with scores.
        batch_size: examples a batch; the last one may be smaller.
        max_sequence_length: in tokens, [CLS] and [SEP] included; longer inputs are trimmed.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: no examples, a batch size below 1, or a label that is not a number.
    """
    # Each score that occurs is a class, and is put back in the place of its id.
    labels = list(dict.fromkeys(examples.labels or ())) if targets else None
    batches = classification.dataset(
        examples,
        tokenizer,
        labels,
        batch_size=batch_size,
        max_sequence_length=max_sequence_length,
        shuffle=shuffle,
        seed=seed,
    )
    if labels is None:
        return batches
    values = tf.constant([_number(examples, label) for label in labels], tf.float32)

    def with_scores(inputs: Any, targets: dict[str, tf.Tensor]) -> Any:
        return inputs, {"score": tf.gather(values, targets["logits"])}

    return batches.map(with_scores)


def _number(examples: Examples, label: str) -> float:
    try:
        value = float(label)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ValueError(f"{examples.source}: label {label!r}, expected a finite number")
    return value
