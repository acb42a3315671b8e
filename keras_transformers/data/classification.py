"""Batches of texts, or pairs of texts, with one label each, that `model.fit` takes.

    examples.load -> cleaning.deduplicate, split -> dataset

Nothing is cut silently: `dataset` logs, and `statistics` returns, what is trimmed and padded.
"""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_transformers.data.examples import Examples

_logger = logging.getLogger(__name__)

# How many batches of similar length are cut out of one pool of shuffled examples. More batches
# give less padding; fewer mix the examples better.
_BATCHES_A_POOL = 50


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What batching did: counts of examples, and of tokens ([CLS] and [SEP] included)."""

    source: str
    num_examples: int
    num_trimmed: int
    num_tokens: int
    num_padding: int

    def __str__(self) -> str:
        positions = self.num_tokens + self.num_padding
        return (
            f"{self.source}: {self.num_examples} examples, {self.num_tokens} tokens, "
            f"{self.num_trimmed} inputs trimmed, "
            f"{100 * self.num_padding / positions:.1f}% of {positions} positions are padding"
        )


class Tokenizer(Protocol):
    """What `dataset` asks of a tokenizer; `WordPieceTokenizer` is one."""

    def __call__(
        self, text: Any, text_b: Any = None, *, max_sequence_length: int
    ) -> dict[str, Any]:
        """Packs texts (batch,) into token_ids, segment_ids, padding_mask, each (batch, seq)."""
        ...

    def lengths(self, text: Any, text_b: Any = None) -> Any:
        """Packed lengths before anything is trimmed: int32 (batch,)."""
        ...


def dataset(
    examples: Examples,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None,
    *,
    batch_size: int,
    max_sequence_length: int,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches of (inputs, {"logits": label ids}), one pass over the examples.

    A batch is as long as its longest text. Shuffled batches hold texts of about the same length,
    so that little is padded; every pass sees every example once, in another order, and the order
    of the n-th pass depends on `seed` alone. Unshuffled batches keep the order of `examples`.
    What is trimmed and padded is logged: as a warning where inputs are trimmed.

    Args:
        examples: what to batch.
        tokenizer: packs texts into token_ids and segment_ids, int32, and padding_mask, bool, each
            (batch, seq), inside the graph.
        labels: label -> id is its position here. None: no targets, only the inputs dict.
        batch_size: examples a batch; the last one may be smaller.
        max_sequence_length: in tokens, [CLS] and [SEP] included; longer inputs are trimmed.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: no examples, a batch size below 1, or a label that is not in `labels`.
    """
    if not len(examples):
        raise ValueError(f"{examples.source}: no examples")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, must be 1 or more")
    texts = tf.constant(examples.texts)
    texts_b = None if examples.texts_b is None else tf.constant(examples.texts_b)
    targets = None if labels is None else tf.constant(_label_ids(examples, labels))
    full_lengths = _lengths(examples, tokenizer)
    lengths = tf.minimum(full_lengths, max_sequence_length)
    counts = _statistics(
        examples.source, full_lengths, max_sequence_length, batch_size, shuffle, seed
    )
    _logger.log(logging.WARNING if counts.num_trimmed else logging.INFO, "%s", counts)

    def batches_of_pass(pass_seed: tf.Tensor) -> tf.data.Dataset:
        order, starts = _plan(lengths, batch_size, shuffle, tf.stack([seed, pass_seed]))
        slices = tf.data.Dataset.from_tensor_slices(starts)
        return slices.map(lambda start: order[start : start + batch_size])

    def encode(indices: tf.Tensor) -> Any:
        text_b = None if texts_b is None else tf.gather(texts_b, indices)
        inputs = tokenizer(
            tf.gather(texts, indices), text_b, max_sequence_length=max_sequence_length
        )
        return inputs if targets is None else (inputs, {"logits": tf.gather(targets, indices)})

    # One number a pass, another in each pass over the same dataset object, as with `shuffle`.
    passes = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1)
    num_batches = -(-len(examples) // batch_size)
    return (
        passes.flat_map(batches_of_pass)
        .map(encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .apply(tf.data.experimental.assert_cardinality(num_batches))
        .prefetch(tf.data.AUTOTUNE)
    )


def statistics(
    examples: Examples,
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    max_sequence_length: int,
    shuffle: bool = False,
    seed: int = 0,
) -> Statistics:
    """Counts what `dataset` trims and pads, with the same arguments.

    The padding of shuffled batches differs a little from pass to pass; one pass is counted.
    """
    lengths = _lengths(examples, tokenizer)
    return _statistics(examples.source, lengths, max_sequence_length, batch_size, shuffle, seed)


def _lengths(examples: Examples, tokenizer: Tokenizer) -> tf.Tensor:
    """Packed lengths before trimming, int32 (n,)."""
    texts_b = None if examples.texts_b is None else tf.constant(examples.texts_b)
    return tokenizer.lengths(tf.constant(examples.texts), texts_b)


def _statistics(
    source: str,
    full: tf.Tensor,
    max_sequence_length: int,
    batch_size: int,
    shuffle: bool,
    seed: int,
) -> Statistics:
    lengths = tf.minimum(full, max_sequence_length)
    order, starts = _plan(lengths, batch_size, shuffle, tf.constant([seed, 0], tf.int64))
    sizes = lengths.numpy()[order.numpy()]  # (n,), in the order of the batches' members
    batches = [sizes[start : start + batch_size] for start in starts.numpy()]
    num_positions = sum(len(batch) * int(batch.max()) for batch in batches)
    num_tokens = int(sizes.sum())
    num_trimmed = int(np.sum(full.numpy() > max_sequence_length))
    return Statistics(source, len(sizes), num_trimmed, num_tokens, num_positions - num_tokens)


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
    pool = tf.range(count) // (batch_size * _BATCHES_A_POOL)
    rank = pool * (tf.reduce_max(lengths) + 1) + tf.gather(lengths, order)
    order = tf.gather(order, tf.argsort(rank, stable=True))
    return order, tf.random.experimental.stateless_shuffle(starts, seed + 1)


def _label_ids(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    if examples.labels is None:
        raise ValueError(f"{examples.source}: examples without labels cannot be targets")
    ids = {label: i for i, label in enumerate(labels)}
    unknown = sorted(set(examples.labels) - set(ids))
    if unknown:
        raise ValueError(f"{examples.source}: unknown labels {unknown}, expected {list(labels)}")
    return np.array([ids[label] for label in examples.labels], np.int32)
