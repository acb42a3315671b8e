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

from keras_transformers.data import batching
from keras_transformers.data.text.examples import Examples

_logger = logging.getLogger(__name__)


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
    texts = tf.constant(examples.texts)
    texts_b = None if examples.texts_b is None else tf.constant(examples.texts_b)
    targets = None if labels is None else tf.constant(_label_ids(examples, labels))
    full_lengths = _lengths(examples, tokenizer)
    lengths = np.minimum(full_lengths, max_sequence_length)
    counts = _statistics(
        examples.source, full_lengths, max_sequence_length, batch_size, shuffle, seed
    )
    _logger.log(logging.WARNING if counts.num_trimmed else logging.INFO, "%s", counts)

    def encode(indices: tf.Tensor) -> Any:
        text_b = None if texts_b is None else tf.gather(texts_b, indices)
        inputs = tokenizer(
            tf.gather(texts, indices), text_b, max_sequence_length=max_sequence_length
        )
        return inputs if targets is None else (inputs, {"logits": tf.gather(targets, indices)})

    batches = batching.index_batches(lengths, batch_size=batch_size, shuffle=shuffle, seed=seed)
    return batches.map(encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(
        tf.data.AUTOTUNE
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


def _lengths(examples: Examples, tokenizer: Tokenizer) -> np.ndarray:
    """Packed lengths before trimming, int32 (n,)."""
    texts_b = None if examples.texts_b is None else tf.constant(examples.texts_b)
    return tokenizer.lengths(tf.constant(examples.texts), texts_b).numpy()


def _statistics(
    source: str,
    full: np.ndarray,
    max_sequence_length: int,
    batch_size: int,
    shuffle: bool,
    seed: int,
) -> Statistics:
    lengths = np.minimum(full, max_sequence_length)
    num_positions = batching.num_positions(
        lengths, batch_size=batch_size, shuffle=shuffle, seed=seed
    )
    num_trimmed, num_tokens = int(np.sum(full > max_sequence_length)), int(lengths.sum())
    return Statistics(source, len(lengths), num_trimmed, num_tokens, num_positions - num_tokens)


def _label_ids(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    if examples.labels is None:
        raise ValueError(f"{examples.source}: examples without labels cannot be targets")
    ids = {label: i for i, label in enumerate(labels)}
    unknown = sorted(set(examples.labels) - set(ids))
    if unknown:
        raise ValueError(f"{examples.source}: unknown labels {unknown}, expected {list(labels)}")
    return np.array([ids[label] for label in examples.labels], np.int32)
