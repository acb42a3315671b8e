"""Pairs of sentences, from files to batches that are counted in tokens.

    read_multi30k, read_parallel or read_tsv -> encode -> training_dataset, evaluation_dataset

Text becomes token ids once, before training; the pipeline then only picks and pads. Pairs of about
the same length share a batch, so that little is padded. Nothing goes silently: what is dropped is
in `EncodedPairs.report`, what is padded in `batch_statistics`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_transformers.data.translation.parallel_text import (
    Pair,
    read_multi30k,
    read_parallel,
    read_tsv,
)
from keras_transformers.data.translation.token_batches import (
    Batch,
    Seed,
    TokenLists,
    best_limits,
    plan_batches,
)
from keras_transformers.tokenizers.bpe_dropout import BytePairDropout
from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer

__all__ = [
    "BatchStatistics",
    "EncodedPairs",
    "EncodingReport",
    "Pair",
    "batch_arrays",
    "batch_statistics",
    "encode",
    "evaluation_dataset",
    "read_multi30k",
    "read_parallel",
    "read_tsv",
    "training_dataset",
    "with_dropout",
]

_CHUNK = 10_000  # pairs that are tokenized at once


class Tokenizer(Protocol):
    """What `encode` asks: `SentencePieceTokenizer`, or another with its special tokens' ids."""

    def tokenize(self, text: Any, *, add_start: bool = ..., add_end: bool = ...) -> tf.RaggedTensor:
        """Texts (batch,) to token ids, int32 (batch, None)."""
        ...


@dataclasses.dataclass(frozen=True)
class EncodingReport:
    """What `encode` kept and dropped: counts of pairs, and of the tokens that were kept."""

    num_pairs: int
    num_empty: int
    num_too_long: int
    num_source_tokens: int
    num_target_tokens: int
    max_sequence_length: int

    def __str__(self) -> str:
        kept = self.num_pairs - self.num_empty - self.num_too_long
        return (
            f"{kept} of {self.num_pairs} pairs kept, {self.num_source_tokens} source and "
            f"{self.num_target_tokens} target tokens; dropped: {self.num_empty} with an empty "
            f"side, {self.num_too_long} with a side of more than {self.max_sequence_length} tokens"
        )


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
    """Pairs of sentences as token ids, in memory.

    Attributes:
        source: token ids, each row with the end token.
        target: token ids, each row with the start and the end token.
        indices: (pairs,), the place of each pair among those that were read.
        report: what was kept and dropped.
    """

    source: TokenLists
    target: TokenLists
    indices: np.ndarray
    report: EncodingReport

    def __len__(self) -> int:
        return len(self.source)


Epochs = EncodedPairs | Callable[[int], EncodedPairs]  # of all epochs, or by the epoch's number


def encode(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    *,
    max_sequence_length: int,
    target_tokenizer: Tokenizer | None = None,
) -> EncodedPairs:
    """Tokenizes pairs and drops, counting them, those that cannot be learned from.

    Args:
        pairs: (source, target).
        tokenizer: of both languages.
        max_sequence_length: positions that the model has for a source with its end token, and for
            a target with its start or end token. Longer pairs are dropped.
        target_tokenizer: of the targets, where they have one of their own.

    Returns:
        The pairs that have tokens on both sides and fit, in their order.
    """
    target_tokenizer = target_tokenizer or tokenizer
    sources: list[tf.RaggedTensor] = []
    targets: list[tf.RaggedTensor] = []
    remaining = iter(pairs)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        source_texts, target_texts = zip(*chunk, strict=True)
        sources.append(tokenizer.tokenize(source_texts, add_end=True))
        targets.append(target_tokenizer.tokenize(target_texts, add_start=True, add_end=True))
    return _keep(_join(sources), _join(targets), max_sequence_length)


def with_dropout(
    pairs: EncodedPairs, tokenizer: SentencePieceTokenizer, *, dropout: float, seed: int
) -> Callable[[int], EncodedPairs]:
    """Cuts the pairs into other tokens in each epoch; see `BytePairDropout`.

    Args:
        pairs: what `encode` returned, with this tokenizer.
        tokenizer: of both languages.
        dropout: probability of leaving out a merge, on both sides; the paper takes 0.1.
        seed: of the run.

    Returns:
        Epoch, from 0 -> its pairs, for `training_dataset`. A pair that became longer than
        `max_sequence_length` is left out of the epoch, and counted in its report.

    Raises:
        ValueError: on the first call: `dropout` is out of range.
    """
    vocabulary = tokenizer.vocabulary
    source = BytePairDropout(vocabulary, pairs.source.values, pairs.source.lengths)
    target = BytePairDropout(vocabulary, pairs.target.values, pairs.target.lengths)

    @functools.lru_cache(maxsize=1)
    def of_epoch(epoch: int) -> EncodedPairs:
        return _keep(
            TokenLists(*source(dropout=dropout, seed=(seed, epoch, 0))),
            TokenLists(*target(dropout=dropout, seed=(seed, epoch, 1))),
            pairs.report.max_sequence_length,
            pairs.indices,
        )

    return of_epoch


def training_dataset(
    pairs: Epochs,
    *,
    batch_tokens: int,
    seed: int = 0,
    num_shapes: int | None = None,
    skip_batches: int = 0,
) -> tf.data.Dataset:
    """Batches for `fit`, epoch after epoch without end, each epoch in another order.

    An element is `(inputs, targets, sample_weight)`:
      - inputs: `source_token_ids` int32 (batch, source), ending in the end token, and
        `target_token_ids` int32 (batch, target), the decoder's input, beginning with the start
        token; both padded with the padding token.
      - targets: int32 (batch, target), the token that follows each of `target_token_ids`, so
        ending in the end token.
      - sample_weight: float32 (batch, target), 1 at real tokens and 0 at padding.

    All of it depends on the arguments alone: a run that has seen n batches goes on with
    `skip_batches=n` as if it had not stopped. Give `fit` the number of batches of an epoch,
    `steps_per_epoch=batch_statistics(...).num_batches`. Epochs may differ by a few batches; what
    is left of one begins the next.

    Args:
        pairs: of all epochs; or a function from an epoch's number to its pairs, as `with_dropout`
            makes one.
        batch_tokens: positions of a batch at most, source and target together, padding included.
            (The paper: about 50,000. What fairseq calls max-tokens counts one side: half of it.)
        seed: of the order.
        num_shapes: None pads each batch to its longest source and target. A number bounds how many
            shapes there are, for XLA and TPUs, by classes of length chosen to pad least; a batch
            may then end in empty rows, all of weight 0. With 1 the dataset's type is static.
        skip_batches: how many batches to leave out at the beginning.

    Raises:
        ValueError: there are no pairs, or one alone takes more than `batch_tokens`.
    """
    of_epoch, shape_lengths = _epochs(pairs, num_shapes)

    def plan(epoch: int) -> tuple[EncodedPairs, list[Batch]]:
        epoch_pairs = of_epoch(epoch)
        return epoch_pairs, _plan(epoch_pairs, batch_tokens, (seed, epoch), shape_lengths)

    _, first = plan(0)  # what is wrong with the arguments shows now, not in the pipeline

    def batches() -> Iterator[Any]:
        skip = skip_batches
        for epoch in itertools.count():
            epoch_pairs, planned = plan(epoch)
            for batch in planned[skip:]:
                yield batch_arrays(epoch_pairs, batch)
            skip = max(0, skip - len(planned))

    return _dataset(batches, first[0] if num_shapes == 1 else None)


def evaluation_dataset(
    pairs: EncodedPairs, *, batch_tokens: int, num_shapes: int | None = None
) -> tf.data.Dataset:
    """Batches of all pairs, once, by length; elements and arguments as of `training_dataset`.

    Raises:
        ValueError: there are no pairs, or one alone takes more than `batch_tokens`.
    """
    _, shape_lengths = _epochs(pairs, num_shapes)
    plan = _plan(pairs, batch_tokens, None, shape_lengths)
    dataset = _dataset(
        lambda: (batch_arrays(pairs, batch) for batch in plan), plan[0] if num_shapes == 1 else None
    )
    return dataset.apply(tf.data.experimental.assert_cardinality(len(plan)))


@dataclasses.dataclass(frozen=True)
class BatchStatistics:
    """What batching did, both sides together."""

    num_pairs: int
    num_batches: int
    num_shapes: int
    num_positions: int
    num_padding: int

    def __str__(self) -> str:
        return (
            f"{self.num_pairs} pairs in {self.num_batches} batches of {self.num_shapes} shapes, "
            f"{100 * self.num_padding / self.num_positions:.1f}% of {self.num_positions} "
            "positions are padding"
        )


def batch_statistics(
    pairs: Epochs, *, batch_tokens: int, seed: int = 0, num_shapes: int | None = None
) -> BatchStatistics:
    """Counts the batches and the padding of the first epoch of `training_dataset`."""
    of_epoch, shape_lengths = _epochs(pairs, num_shapes)
    first = of_epoch(0)
    plan = _plan(first, batch_tokens, (seed, 0), shape_lengths)
    positions = sum(batch.num_positions for batch in plan)
    tokens = int(first.source.lengths.sum() + first.target.lengths.sum()) - len(first)
    shapes = {(batch.num_rows, batch.source_length, batch.target_length) for batch in plan}
    return BatchStatistics(len(first), len(plan), len(shapes), positions, positions - tokens)


def batch_arrays(
    pairs: EncodedPairs, batch: Batch
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The arrays of a batch: inputs, targets, sample_weight, as in `training_dataset`."""
    pad = SentencePieceTokenizer.pad_token_id
    rows, size = batch.indices, batch.num_rows
    source = pairs.source.select(rows).to_padded(size, batch.source_length, pad)
    target = pairs.target.select(rows).to_padded(size, batch.target_length + 1, pad)
    targets = target[:, 1:]
    is_token = targets != pad
    # The end token is predicted, not read: the decoder's input ends one token earlier.
    target = np.where(is_token, target[:, :-1], pad)
    # Empty rows get one token a side, so that attention never finds a row without any.
    source[len(rows) :, 0] = SentencePieceTokenizer.end_token_id
    target[len(rows) :, 0] = SentencePieceTokenizer.start_token_id
    inputs = {"source_token_ids": source, "target_token_ids": target}
    return inputs, targets, is_token.astype(np.float32)


def _join(parts: Sequence[tf.RaggedTensor]) -> TokenLists:
    values = [np.zeros(0, np.int32), *(part.values.numpy() for part in parts)]
    lengths = [np.zeros(0, np.int64), *(part.row_lengths().numpy() for part in parts)]
    return TokenLists(np.concatenate(values), np.concatenate(lengths))


def _keep(
    source: TokenLists,
    target: TokenLists,
    max_sequence_length: int,
    indices: np.ndarray | None = None,
) -> EncodedPairs:
    """Drops the pairs with an empty side or a side that is too long, and counts them."""
    # A source without text is its end token; a target start and end, one of which is a position.
    is_empty = (source.lengths <= 1) | (target.lengths <= 2)
    too_long = np.maximum(source.lengths, target.lengths - 1) > max_sequence_length
    kept = np.flatnonzero(~is_empty & ~too_long)
    source_kept, target_kept = source.select(kept), target.select(kept)
    report = EncodingReport(
        num_pairs=len(source),
        num_empty=int(is_empty.sum()),
        num_too_long=int((too_long & ~is_empty).sum()),
        num_source_tokens=len(source_kept.values),
        num_target_tokens=len(target_kept.values) - len(kept),
        max_sequence_length=max_sequence_length,
    )
    return EncodedPairs(
        source_kept, target_kept, kept if indices is None else indices[kept], report
    )


def _epochs(
    pairs: Epochs, num_shapes: int | None
) -> tuple[Callable[[int], EncodedPairs], list[int] | None]:
    """The pairs of each epoch, and the lengths of the shapes, the same in all epochs."""
    first = pairs(0) if callable(pairs) else pairs
    if not len(first):
        raise ValueError(f"no pairs to make batches of: {first.report}")
    of_epoch = pairs if callable(pairs) else lambda epoch: first
    if num_shapes is None:
        return of_epoch, None
    lengths = best_limits(np.maximum(first.source.lengths, first.target.lengths - 1), num_shapes)
    if callable(pairs):  # another epoch may have a longer pair
        lengths[-1] = first.report.max_sequence_length
    return of_epoch, lengths


def _plan(
    pairs: EncodedPairs, batch_tokens: int, seed: Seed | None, shape_lengths: list[int] | None
) -> list[Batch]:
    return plan_batches(
        pairs.source.lengths,
        pairs.target.lengths - 1,
        batch_tokens=batch_tokens,
        seed=seed,
        shape_lengths=shape_lengths,
    )


def _dataset(batches: Callable[[], Iterator[Any]], static: Batch | None) -> tf.data.Dataset:
    """A dataset of what `batch_arrays` returns; of one shape if a batch says so."""
    rows = static.num_rows if static else None
    source = tf.TensorSpec((rows, static.source_length if static else None), tf.int32)
    target = tf.TensorSpec((rows, static.target_length if static else None), tf.int32)
    signature = (
        {"source_token_ids": source, "target_token_ids": target},
        target,
        tf.TensorSpec(target.shape, tf.float32),
    )
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.prefetch(tf.data.AUTOTUNE)
