"""Batches text pairs by the number of tokens rather than of pairs."""

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import Batches, Samples
from keras_transformers.data.static_shapes import best_limits
from keras_transformers.data.translation.encoded_pairs import EncodedPairs, cut_anew, encode_pairs
from keras_transformers.data.translation.parallel_text import Pair
from keras_transformers.data.translation.token_batches import (
    Batch,
    TokenLists,
    plan_batches,
)
from keras_transformers.tokenizers.packing import ends_of_sources

__all__ = ["PairBatches"]

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of the batches of one epoch, both sides together."""

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


class PairBatches(Batches):
    """Batches of (inputs, {"logits": targets}, {"logits": weights}) for training translators.

    The constructor tokenizes the texts. Pairs of similar length share a batch, which keeps padding
    low.

    - inputs: `source_token_ids` int32 (batch, source), rows ending with the end token, or between
      the special tokens of a pretrained encoder; and `target_token_ids` int32 (batch, target), the
      decoder inputs, rows starting with the start token; both padded with the padding token.
    - targets: int32 (batch, target), the next tokens of `target_token_ids`, rows ending with the
      end token.
    - weights: float32 (batch, target), 1 at real tokens and 0 at padding.

    Shuffled batches are endless, in an order that depends only on the seed and the epoch. With
    `bpe_dropout` the number of batches varies slightly between epochs; batches left over from one
    epoch start the next. Unshuffled batches are sorted by length.

    Args:
        pairs: (source, target) texts.
        pipeline: a `pipelines.Translator`, for its tokenizers and its `max_sequence_length`; longer
            pairs are dropped.
        batch_tokens: maximum number of positions in a batch, source and target together, padding
            included. (About 50,000 in the paper; fairseq's max-tokens counts one side: half of it.)
        accumulate: number of such batches to join into one, for gradient accumulation.
        shuffle: whether to reshuffle in each epoch.
        seed: seed for the order and for `bpe_dropout`.
        bpe_dropout: probability of skipping a merge (0.1 in the paper), to tokenize both sides
            differently in each epoch; 0 disables it.
        static_shapes: None pads each batch to its longest source and target. A number limits how
            many shapes there are, for XLA and TPUs, with the length classes that need the least
            padding; batches may then end with empty rows of weight 0. With 1, the dataset has
            static shapes.

    Attributes:
        pairs: the pairs as token ids.
        report: counts of what was kept and dropped.
        statistics: counts of the first epoch.

    Raises:
        ValueError: there are no pairs, a pair takes more than `batch_tokens`, or an option is out
            of range.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        pipeline: Any,
        *,
        batch_tokens: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        bpe_dropout: float = 0.0,
        static_shapes: int | None = None,
    ) -> None:
        tokenizers = (pipeline.tokenizer, pipeline.target_tokenizer)
        encoded = encode_pairs(pairs, *tokenizers, max_sequence_length=pipeline.max_sequence_length)
        self.pipeline = pipeline
        self.pairs = encoded
        self.report = encoded.report
        self.shuffle = shuffle
        self.seed = seed
        self.static_shapes = static_shapes
        self._part_tokens = batch_tokens
        self._batch_tokens = batch_tokens * accumulate
        self._parts = accumulate
        self._of_epoch = lambda epoch: encoded
        if bpe_dropout:
            vocabularies = (tokenizer.vocabulary for tokenizer in tokenizers)
            self._of_epoch = cut_anew(encoded, *vocabularies, dropout=bpe_dropout, seed=seed)
        first = self._of_epoch(0)
        if not len(first):
            raise ValueError(f"no pairs to make batches of: {first.report}")
        self._shape_lengths = None
        if static_shapes is not None:
            longest = np.maximum(first.source.lengths, first.target.lengths - 1)
            self._shape_lengths = best_limits(longest, static_shapes)
            if bpe_dropout:  # another epoch may have a longer pair
                self._shape_lengths[-1] = pipeline.max_sequence_length
        plan = self.plan(0)
        self.statistics = _statistics(first, plan)
        self.num_rows = len(encoded)
        self.mean_lengths = {
            "source_token_ids": self.report.num_source_tokens / len(encoded),
            "target_token_ids": self.report.num_target_tokens / len(encoded),
        }
        static = plan[0] if static_shapes == 1 else None  # all batches have its shape
        rows = static.num_rows if static else None
        source = tf.TensorSpec((rows, static.source_length if static else None), tf.int32)
        target = tf.TensorSpec((rows, static.target_length if static else None), tf.int32)
        inputs = {"source_token_ids": source, "target_token_ids": target}
        weights = tf.TensorSpec(target.shape, tf.float32)
        self._signature = (inputs, {"logits": target}, {"logits": weights})
        is_dropped = self.report.num_empty or self.report.num_too_long
        level = logging.WARNING if is_dropped else logging.INFO
        _logger.log(level, "%s; %s", self.report, self.statistics)

    def __len__(self) -> int:
        return self.statistics.num_batches

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass by length."""
        tokenizers = (self.pipeline.tokenizer, self.pipeline.target_tokenizer)

        def batches() -> Iterator[Any]:
            remaining = skip
            for epoch in itertools.count() if self.shuffle else range(1):
                pairs, plan = self._of_epoch(epoch), self.plan(epoch)
                for batch in plan[remaining:]:
                    yield batch_arrays(pairs, batch, *tokenizers)
                remaining = max(0, remaining - len(plan))

        dataset = tf.data.Dataset.from_generator(batches, output_signature=self._signature)
        if not self.shuffle:
            count = max(0, len(self) - skip)
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
        return dataset.prefetch(tf.data.AUTOTUNE)

    def of(self, examples: Iterable[Pair]) -> Self:
        """Returns batches of other pairs, made the same way but in order and without dropout."""
        return type(self)(
            examples,
            self.pipeline,
            batch_tokens=self._part_tokens,
            shuffle=False,
            static_shapes=self.static_shapes,
        )

    def samples(self, count: int) -> Samples:
        """Returns the first pairs."""
        rows = np.arange(min(count, len(self.pairs)))
        sides = (
            (self.pairs.source, self.pipeline.tokenizer),
            (self.pairs.target, self.pipeline.target_tokenizer),
        )
        texts, expected = (_texts(lists.select(rows), tokenizer) for lists, tokenizer in sides)
        return Samples(self.pipeline, {"text": texts}, expected)

    def plan(self, epoch: int) -> list[Batch]:
        """Plans which pairs share a batch in an epoch, and the shapes of the batches."""
        pairs = self._of_epoch(epoch)
        return plan_batches(
            pairs.source.lengths,
            pairs.target.lengths - 1,
            batch_tokens=self._batch_tokens,
            seed=(self.seed, epoch) if self.shuffle else None,
            shape_lengths=self._shape_lengths,
            parts=self._parts,
        )


def batch_arrays(
    pairs: EncodedPairs, batch: Batch, tokenizer: Any, target_tokenizer: Any
) -> tuple[dict[str, np.ndarray], ...]:
    """Returns the arrays of one batch; see `PairBatches`. Tokenizers supply special tokens."""
    pad = target_tokenizer.pad_token_id
    rows, size = batch.indices, batch.num_rows
    source = pairs.source.select(rows).to_padded(size, batch.source_length, tokenizer.pad_token_id)
    target = pairs.target.select(rows).to_padded(size, batch.target_length + 1, pad)
    targets = target[:, 1:]
    is_token = targets != pad
    # The end token is predicted, not read: the decoder's input ends one token earlier.
    target = np.where(is_token, target[:, :-1], pad)
    # Empty rows get one token on each side, so that attention never meets a fully masked row.
    source[len(rows) :, 0] = ends_of_sources(tokenizer)[1][0]
    target[len(rows) :, 0] = target_tokenizer.start_token_id
    inputs = {"source_token_ids": source, "target_token_ids": target}
    return inputs, {"logits": targets}, {"logits": is_token.astype(np.float32)}


def _texts(lists: TokenLists, tokenizer: Any) -> list[str]:
    token_ids = tf.RaggedTensor.from_row_lengths(lists.values, lists.lengths)
    return [text.decode() for text in tokenizer.detokenize(token_ids).numpy()]


def _statistics(pairs: EncodedPairs, plan: list[Batch]) -> Statistics:
    positions = sum(batch.num_positions for batch in plan)
    tokens = int(pairs.source.lengths.sum() + pairs.target.lengths.sum()) - len(pairs)
    shapes = {(batch.num_rows, batch.source_length, batch.target_length) for batch in plan}
    return Statistics(len(pairs), len(plan), len(shapes), positions, positions - tokens)
