"""Which examples share a batch: those of about the same length, in another order each pass."""

import abc
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import tensorflow as tf

__all__ = ["Batches", "CachedBatches", "LengthBatches", "index_batches", "num_positions"]

# How many batches of similar length are cut out of one pool of shuffled examples. More batches
# give less padding; fewer mix the examples better.
_BATCHES_PER_POOL = 50


class Batches(abc.ABC):
    """Examples in batches, as `runs.Run.fit_arguments` takes them.

    Attributes:
        num_rows: rows of all batches of an epoch together.
        mean_lengths: tokens of a row on average; where inputs differ, by the name of the input.
        other_lengths: of inputs that do not hold tokens, such as positions of masks.
    """

    num_rows: int
    mean_lengths: float | Mapping[str, float]
    other_lengths: Mapping[str, float] = MappingProxyType({})

    @abc.abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch."""

    @abc.abstractmethod
    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """The batches: endless where they are shuffled, else one pass in order.

        Args:
            skip: batches to leave out at the start, without making them.
        """

    @abc.abstractmethod
    def of(self, examples: Any) -> Self:
        """Batches of other examples, made the same way but in order: for validation and tests."""


class LengthBatches(Batches):
    """Batches of examples of about the same length, so that little is padded.

    Every pass sees every example once, in another order, and the order of the n-th pass depends on
    the seed alone. Unshuffled batches keep the order.

    Args:
        lengths: (rows,), in tokens.
        batch_size: rows of a batch; the last one may be smaller.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: there are no rows, or the batch size is below 1.
    """

    def __init__(self, lengths: np.ndarray, *, batch_size: int, shuffle: bool, seed: int) -> None:
        _check(lengths, batch_size)
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.num_rows = len(self.lengths)
        self.mean_lengths = float(self.lengths.mean())

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    @property
    def num_positions(self) -> int:
        """Positions of one pass, padding included; of shuffled passes it differs a little."""
        return num_positions(
            self.lengths, batch_size=self.batch_size, shuffle=self.shuffle, seed=self.seed
        )

    @abc.abstractmethod
    def batch(self, indices: tf.Tensor) -> Any:
        """The rows at `indices` int32 (batch,), in the graph: what `fit` takes as one batch."""

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """The batches: endless where they are shuffled, else one pass in order."""
        indices = index_batches(
            self.lengths, batch_size=self.batch_size, shuffle=self.shuffle, seed=self.seed
        )
        if self.shuffle:
            indices = indices.repeat()
        batches = indices.skip(skip).map(
            self._graph, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    @functools.cached_property
    def _graph(self) -> Callable[[tf.Tensor], Any]:
        """`batch`, traced once for all datasets: a validation makes one in each epoch."""
        indices = tf.TensorSpec([None], tf.int32)
        return tf.function(self.batch, autograph=False, input_signature=[indices])


class CachedBatches(Batches):
    """Batches that are computed once and then stay in memory, such as a frozen encoder's features.

    Where `batches` are shuffled, every pass takes the same batches in another order.

    Args:
        batches: whose first pass is kept.
        function: what to compute, in the graph, from the parts of a batch: inputs, targets ...

    Attributes:
        source: `batches`, as given.
    """

    def __init__(self, batches: LengthBatches, function: Callable[..., Any]) -> None:
        self.source = batches
        self.num_rows, self.mean_lengths = batches.num_rows, batches.mean_lengths
        self._function = function
        self._kept = batches.dataset().take(len(batches)).map(function).cache()

    def __len__(self) -> int:
        return len(self.source)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """The batches: endless where they are shuffled, else one pass in order.

        Args:
            skip: batches to leave out at the start; they are computed all the same, to be kept.
        """
        batches = self._kept
        if self.source.shuffle:
            batches = batches.shuffle(len(self), seed=self.source.seed).repeat()
        return batches.skip(skip)

    def of(self, examples: Any) -> Self:
        """Batches of other examples, made the same way but in order."""
        return type(self)(self.source.of(examples), self._function)


def index_batches(
    lengths: np.ndarray, *, batch_size: int, shuffle: bool, seed: int
) -> tf.data.Dataset:
    """Batches of indices of examples, int32 (batch,); one pass over all of them.

    Shuffled batches hold examples of about the same length, so that little is padded; every pass
    sees every example once, in another order, and the order of the n-th pass depends on `seed`
    alone. Unshuffled batches keep the order.

    Args:
        lengths: (examples,), in tokens.
        batch_size: examples per batch; the last one may be smaller.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: there are no examples, or the batch size is below 1.
    """
    _check(lengths, batch_size)
    sizes = tf.constant(lengths, tf.int32)

    def batches_of_pass(pass_seed: tf.Tensor) -> tf.data.Dataset:
        order, starts = _plan(sizes, batch_size, shuffle, tf.stack([seed, pass_seed]))
        slices = tf.data.Dataset.from_tensor_slices(starts)
        return slices.map(lambda start: order[start : start + batch_size])

    # One number per pass, another in each pass over the same dataset object, as with `shuffle`.
    passes = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1)
    num_batches = -(-len(lengths) // batch_size)
    return passes.flat_map(batches_of_pass).apply(
        tf.data.experimental.assert_cardinality(num_batches)
    )


def num_positions(lengths: np.ndarray, *, batch_size: int, shuffle: bool, seed: int) -> int:
    """Positions, padding included, of all batches of one pass of `index_batches`."""
    _check(lengths, batch_size)
    order, starts = _plan(
        tf.constant(lengths, tf.int32), batch_size, shuffle, tf.constant([seed, 0], tf.int64)
    )
    sizes = np.asarray(lengths)[order.numpy()]
    batches = [sizes[start : start + batch_size] for start in starts.numpy()]
    return sum(len(batch) * int(batch.max()) for batch in batches)


def _check(lengths: np.ndarray, batch_size: int) -> None:
    if not len(lengths):
        raise ValueError("there are no examples to batch")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, must be 1 or more")


def _plan(
    lengths: tf.Tensor, batch_size: int, shuffle: bool, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The order of the examples (n,), and where in it each batch starts (batches,).

    Shuffled: cut a random order into pools, sort each pool by length, cut it into batches, and
    take the batches in random order.
    """
    count = len(lengths)
    order = tf.range(count)
    starts = tf.range(0, count, batch_size)
    if not shuffle:
        return order, starts
    order = tf.random.experimental.stateless_shuffle(order, seed)
    pool = tf.range(count) // (batch_size * _BATCHES_PER_POOL)
    rank = pool * (tf.reduce_max(lengths) + 1) + tf.gather(lengths, order)
    order = tf.gather(order, tf.argsort(rank, stable=True))
    return order, tf.random.experimental.stateless_shuffle(starts, seed + 1)
