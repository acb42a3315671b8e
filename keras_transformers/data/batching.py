"""Groups examples of similar length into batches, in a new order on each pass."""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.static_shapes import Batch, StaticShapes, best_limits, by_row
from keras_transformers.data.weighting import ClassWeight, class_weights

__all__ = [
    "Batches",
    "CachedBatches",
    "LengthBatches",
    "Samples",
    "index_batches",
    "num_positions",
]

# Batches cut from one pool of shuffled examples. More batches mean less padding; fewer mix the
# examples better.
_BATCHES_PER_POOL = 50


class Samples(NamedTuple):
    """A few examples to show, and the pipeline that answers them.

    Attributes:
        pipeline: a `pipelines.Pipeline`.
        texts: name of each of its inputs -> strings, or lists of them, one per example, for
            `Pipeline.rows`.
        expected: the right answer for each example; empty if unknown.
    """

    pipeline: Any
    texts: Mapping[str, Sequence[Any]]
    expected: Sequence[str]


class Batches(abc.ABC):
    """Examples in batches, for `runs.Run.prepare`.

    Attributes:
        num_rows: number of rows in an epoch.
        mean_lengths: mean number of tokens per row; a mapping from input names if inputs differ;
            for inputs (batch, choices, length), the mean numbers of choices and of tokens in each.
        other_lengths: the same for inputs that hold no tokens, such as mask positions.
        class_counts: each label -> its number of examples; None without labels.
        has_weights: whether classes or examples have weights of their own in the loss.
    """

    num_rows: int
    mean_lengths: float | tuple[float, ...] | Mapping[str, float]
    other_lengths: Mapping[str, float] = MappingProxyType({})
    class_counts: Mapping[str, int] | None = None
    has_weights: bool = False

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of batches in an epoch."""

    @abc.abstractmethod
    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass in order.

        Args:
            skip: number of batches to skip at the start without computing them.
        """

    @abc.abstractmethod
    def of(self, examples: Any) -> Self:
        """Returns batches of other examples, made the same way but in order, for evaluation."""

    def samples(self, count: int) -> Samples | None:
        """Returns the first examples; None without a pipeline.

        Args:
            count: the maximum number.
        """
        return None

    def damage(self) -> str | None:
        """Returns the file on disk that is damaged, and where; None if all are intact.

        TensorFlow's own error does not name it. This may read all files, so call it after an error.
        """
        return None


class LengthBatches(Batches):
    """Batches of examples of similar length, which keeps padding low.

    Args:
        lengths: lengths of the examples in tokens, (rows,).
        batch_size: rows per batch; the last batch may be smaller.
        shuffle: see `index_batches`.
        seed: seed for shuffling.
        static_shapes: None pads each batch to its longest row. A number limits how many shapes
            there are, for XLA and TPUs, with the length classes that need the least padding. Each
            batch is then full: rows of weight 0 complete it, so there are sample weights for losses
            with `reduction="mean_with_sample_weight"` and for `weighted_metrics`. With 1, the
            dataset has static shapes.
        weights: the weight of each row, (rows,), as sample weights; None if all weigh the same.
        class_counts: each label -> its number of examples, for tasks with labels.
        class_weight: "balanced", or label -> weight; needs `class_counts`. The batches then have
            the weights of their targets as sample weights, times those of their rows.

    Raises:
        ValueError: there are no rows, the batch size or `static_shapes` is below 1, or
            `class_weight` has an unknown label or a weight that is none.
    """

    label_output: ClassVar[str] = "logits"  # the output whose targets `class_weight` weighs

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        static_shapes: int | None = None,
        weights: Sequence[float] | np.ndarray | None = None,
        class_counts: Mapping[str, int] | None = None,
        class_weight: ClassWeight | None = None,
    ) -> None:
        _check(lengths, batch_size)
        if static_shapes is not None and static_shapes < 1:
            raise ValueError(f"static_shapes={static_shapes}: must be 1 or more, or None")
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.static_shapes = static_shapes
        self.num_rows = len(self.lengths)
        self.mean_lengths = float(self.lengths.mean())
        self.class_counts = class_counts
        self._row_weights = None if weights is None else tf.constant(weights, tf.float32)
        self._class_weights = None
        if class_weight is not None:
            if not class_counts:
                raise ValueError(
                    f"class_weight={class_weight!r:.80}: these examples have no labels to weigh"
                )
            self._class_weights = self.class_weights(class_weight, class_counts)
        self.has_weights = weights is not None or class_weight is not None

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    @property
    def num_positions(self) -> int:
        """Positions in one pass, padding included; varies slightly between shuffled passes."""
        return num_positions(
            self.lengths,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            seed=self.seed,
            static_shapes=self.static_shapes,
        )

    @abc.abstractmethod
    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the rows at `indices`, int32 (batch,), as one batch for `fit`; runs in graphs.

        `static_shapes` does not apply yet.
        """

    def class_weights(self, class_weight: ClassWeight, counts: Mapping[str, int]) -> np.ndarray:
        """Returns the weights that `target_weights` looks up, here float32 (classes,)."""
        return class_weights(class_weight, counts)

    def target_weights(self, targets: tf.Tensor, of_class: np.ndarray) -> tf.Tensor:
        """Returns the weights of targets by their class, here of ids (batch, ...); runs in graphs.

        Args:
            targets: those of the output `label_output`.
            of_class: what `class_weights` returned.
        """
        return tf.gather(of_class, targets)

    def with_weights(self, batch: Batch, indices: tf.Tensor) -> Batch:
        """Returns a batch of the rows at `indices` with its sample weights; runs in graphs.

        The weight of a target is its own, if `batch` has one, times its class's, times its row's.
        """
        if not self.has_weights or not isinstance(batch, tuple):
            return batch
        inputs, targets, *others = batch
        weights = dict(others[0]) if others else {}
        if self._class_weights is not None:
            factor = self.target_weights(targets[self.label_output], self._class_weights)
            weights[self.label_output] = factor * weights.get(self.label_output, 1.0)
        rows = tf.ones_like(indices, tf.float32)
        if self._row_weights is not None:
            rows = tf.gather(self._row_weights, indices)  # (batch,)
        return (
            inputs,
            targets,
            {
                name: by_row(rows, weights[name]) * weights[name] if name in weights else rows
                for name in targets
            },
        )

    def in_static_shape(self, batch: Batch, indices: tf.Tensor) -> Batch:
        """Returns a batch of the rows at `indices`, in a static shape; runs in graphs."""
        return batch if self._shapes is None else self._shapes(batch, indices)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass in order."""
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
        """`batch`, traced once and shared by all datasets: validation makes one per epoch."""

        def batch(indices: tf.Tensor) -> Batch:
            return self.in_static_shape(self._weighted_batch(indices), indices)

        return tf.function(
            batch, autograph=False, input_signature=[tf.TensorSpec([None], tf.int32)]
        )

    def _weighted_batch(self, indices: tf.Tensor) -> Batch:
        return self.with_weights(self.batch(indices), indices)

    @functools.cached_property
    def _shapes(self) -> StaticShapes | None:
        if self.static_shapes is None:
            return None
        return StaticShapes(
            self._weighted_batch,
            self.lengths,
            num_rows=self.batch_size,
            num_shapes=self.static_shapes,
        )


class CachedBatches(Batches):
    """Batches that are computed once and kept in memory, such as a frozen encoder's features.

    If `batches` are shuffled, every pass has the same batches in a new order.

    Args:
        batches: batches to compute from; their first pass is kept.
        function: maps the parts of a batch (inputs, targets, ...) to a new batch; runs in graphs.

    Attributes:
        source: the `batches` argument.
    """

    def __init__(self, batches: LengthBatches, function: Callable[..., Any]) -> None:
        self.source = batches
        self.num_rows, self.mean_lengths = batches.num_rows, batches.mean_lengths
        self.class_counts, self.has_weights = batches.class_counts, batches.has_weights
        self._function = function
        self._kept = batches.dataset().take(len(batches)).map(function).cache()

    def __len__(self) -> int:
        return len(self.source)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass in order.

        Args:
            skip: number of batches to skip at the start; they are still computed and cached.
        """
        batches = self._kept
        if self.source.shuffle:
            batches = batches.shuffle(len(self), seed=self.source.seed).repeat()
        return batches.skip(skip)

    def of(self, examples: Any) -> Self:
        """Returns batches of other examples, made the same way but in order."""
        return type(self)(self.source.of(examples), self._function)

    def samples(self, count: int) -> Samples | None:
        """Returns the first examples of `source`; see `Batches.samples`."""
        return self.source.samples(count)


def index_batches(
    lengths: np.ndarray, *, batch_size: int, shuffle: bool, seed: int
) -> tf.data.Dataset:
    """Returns one pass over all examples as batches of their indices, int32 (batch,).

    Shuffled batches group examples of similar length. Each pass has a new order, and the order of
    the n-th pass depends only on `seed`. Unshuffled batches keep the order of the examples.

    Args:
        lengths: lengths of the examples in tokens, (examples,).
        batch_size: examples per batch; the last batch may be smaller.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.

    Raises:
        ValueError: there are no examples, or the batch size is below 1.
    """
    _check(lengths, batch_size)
    sizes = tf.constant(lengths, tf.int32)

    def batches_of_pass(pass_seed: tf.Tensor) -> tf.data.Dataset:
        order, starts = _plan(sizes, batch_size, shuffle, tf.stack([seed, pass_seed]))
        slices = tf.data.Dataset.from_tensor_slices(starts)
        return slices.map(lambda start: order[start : start + batch_size])

    # One number, drawn again on each pass over the same dataset object, as with `shuffle`.
    passes = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1)
    num_batches = -(-len(lengths) // batch_size)
    return passes.flat_map(batches_of_pass).apply(
        tf.data.experimental.assert_cardinality(num_batches)
    )


def num_positions(
    lengths: np.ndarray,
    *,
    batch_size: int,
    shuffle: bool,
    seed: int,
    static_shapes: int | None = None,
) -> int:
    """Returns the number of positions, padding included, in one pass over batches.

    Args:
        lengths: lengths of the examples in tokens, (examples,).
        batch_size: examples per batch.
        shuffle: see `index_batches`.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`.

    Raises:
        ValueError: there are no examples, or the batch size or `static_shapes` is below 1.
    """
    _check(lengths, batch_size)
    order, starts = _plan(
        tf.constant(lengths, tf.int32), batch_size, shuffle, tf.constant([seed, 0], tf.int64)
    )
    sizes = np.asarray(lengths)[order.numpy()]
    batches = [sizes[start : start + batch_size] for start in starts.numpy()]
    longest = np.array([batch.max() for batch in batches])
    if static_shapes is None:
        return sum(len(batch) * int(length) for batch, length in zip(batches, longest, strict=True))
    limits = np.array(best_limits(lengths, static_shapes))
    return batch_size * int(limits[np.searchsorted(limits, longest)].sum())


def _check(lengths: np.ndarray, batch_size: int) -> None:
    if not len(lengths):
        raise ValueError("there are no examples to batch")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, must be 1 or more")


def _plan(
    lengths: tf.Tensor, batch_size: int, shuffle: bool, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the order of the examples (n,) and the index where each batch starts (batches,).

    To shuffle: cut a random order into pools, sort each pool by length, cut it into batches, and
    shuffle the batches.
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
