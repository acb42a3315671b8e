"""Brings batches to a few static shapes, which XLA and TPUs need, without affecting any metric.

Padding extends a batch to the length class of its longest row, and copies of its first row complete
it. The copies have sample weights of 0, so `weighted_metrics`, and losses with
`reduction="mean_with_sample_weight"`, ignore them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# What `fit` takes at a step: inputs, or a tuple of inputs, targets and perhaps weights. Each is a
# tensor or name -> tensor.
Batch = Any


class StaticShapes:
    """Brings the batches of a function to a few shapes.

    Args:
        batch: returns the batch of the rows at some indices, int32 (batch,), as `filled` takes it
            and padded to its longest row, whose length determines its shape.
        lengths: lengths of all rows, (rows,).
        num_rows: rows of each batch.
        num_shapes: maximum number of shapes.

    Raises:
        ValueError: `num_shapes` is below 1.
    """

    def __init__(
        self,
        batch: Callable[[tf.Tensor], Batch],
        lengths: np.ndarray,
        *,
        num_rows: int,
        num_shapes: int,
    ) -> None:
        self._lengths = tf.constant(lengths, tf.int32)
        self._limits = best_limits(lengths, num_shapes)
        self._num_rows = num_rows
        longest = [int(np.flatnonzero(lengths == limit)[0]) for limit in self._limits]
        with tf.init_scope():  # the shapes that `batch` makes are known only when it runs
            examples = [tf.nest.flatten(batch(tf.constant([row]))) for row in longest]
        # For each tensor in a batch, the sizes of all axes except the first, (classes, axes).
        self._sizes = [
            np.array([tensor.shape[1:] for tensor in tensors], np.int32).reshape(len(longest), -1)
            for tensors in zip(*examples, strict=True)
        ]

    def __call__(self, batch: Batch, indices: tf.Tensor) -> Batch:
        """Returns the batch of the rows at `indices` in one of the shapes; runs in graphs."""
        longest = tf.reduce_max(tf.gather(self._lengths, indices))
        number = tf.searchsorted(self._limits, longest[None])[0]
        tensors = tf.nest.flatten(batch)
        padded = [
            _padded(tensor, sizes, number)
            for tensor, sizes in zip(tensors, self._sizes, strict=True)
        ]
        return filled(tf.nest.pack_sequence_as(batch, padded), self._num_rows)


def filled(batch: Batch, num_rows: int) -> Batch:
    """Completes a batch with copies of its first row, at weight 0; runs in graphs.

    Args:
        batch: inputs, or a tuple of inputs, targets and possibly sample weights: trees of tensors
            (rows, ...) with at most `num_rows` rows. Targets without weights must have one loss per
            row.
        num_rows: rows of the result.

    Returns:
        Inputs, or inputs, targets and sample weights, all (num_rows, ...) and these float32.

    Example:
        >>> filled((tf.constant([3, 5]), tf.constant([1, 0])), num_rows=3)[2].numpy()
        array([1., 1., 0.], dtype=float32)
    """
    place = tf.range(num_rows)
    is_real = place < tf.shape(tf.nest.flatten(batch)[0])[0]
    chosen = tf.where(is_real, place, 0)
    batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, chosen), batch)
    if not isinstance(batch, tuple):
        return batch
    inputs, targets, *weights = batch
    counted = tf.cast(is_real, tf.float32)  # (num_rows,)
    if not weights:
        return inputs, targets, tf.nest.map_structure(lambda _: counted, targets)
    return inputs, targets, tf.nest.map_structure(lambda w: by_row(counted, w) * w, weights[0])


def best_limits(lengths: np.ndarray, num_classes: int) -> list[int]:
    """Finds the upper limits of the length classes with the least padding, by dynamic programming.

    Args:
        lengths: positive lengths, (n,).
        num_classes: maximum number of classes.

    Returns:
        Ascending lengths; the last is the greatest of `lengths`.

    Raises:
        ValueError: `num_classes` is below 1.

    Example:
        >>> best_limits(np.array([3, 3, 4, 9, 9, 10]), 2)
        [4, 10]
    """
    if num_classes < 1:
        raise ValueError(f"{num_classes} length classes: must be 1 or more")
    values, counts = np.unique(lengths, return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)])  # items below value i
    size = len(values)
    # positions[i, j]: size of a class with the values i to j, all padded to value j.
    positions = (total[None, 1:] - total[:-1, None]) * values.astype(np.float64)
    positions[np.tril_indices(size, -1)] = np.inf
    best = np.full(size, np.inf)  # best[j]: size of the values up to j, in the classes so far
    firsts = []
    for _ in range(min(num_classes, size)):
        # before[i]: size of the values below i, in earlier classes; 0 at i = 0.
        before = np.concatenate([[0.0], best[:-1]])
        candidates = before[:, None] + positions
        firsts.append(candidates.argmin(axis=0))
        best = candidates.min(axis=0)
    limits, last = [], size - 1
    for first in reversed(firsts):
        if last >= 0:
            limits.append(int(values[last]))
            last = first[last] - 1
    return limits[::-1]


def _padded(tensor: tf.Tensor, sizes: np.ndarray, number: tf.Tensor) -> tf.Tensor:
    """Pads a tensor (rows, ...) with zeros to the sizes of a class.

    Zero is False in a padding mask, and models ignore the other inputs there.
    """
    if tensor.shape[1:].is_fully_defined() and (sizes == np.array(tensor.shape[1:])).all():
        return tensor
    missing = tf.gather(sizes, number) - tf.shape(tensor)[1:]  # (axes,)
    after = tf.concat([[0], missing], axis=0)
    padded = tf.pad(tensor, tf.stack([tf.zeros_like(after), after], axis=1))
    fixed = [column[0] if (column == column[0]).all() else None for column in sizes.T]
    return tf.ensure_shape(padded, [None, *fixed])


def by_row(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Appends axes of size 1 to weights (rows,), to multiply values (rows, ...)."""
    return tf.reshape(weights, [-1, *[1] * (len(values.shape) - 1)])
