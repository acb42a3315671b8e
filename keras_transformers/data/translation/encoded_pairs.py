"""Pairs of texts as token ids in memory: tokenized once, or cut into other tokens in each epoch."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_transformers.data.translation.parallel_text import Pair
from keras_transformers.data.translation.token_batches import TokenLists
from keras_transformers.tokenizers.bpe_dropout import BytePairDropout

__all__ = ["EncodedPairs", "EncodingReport", "encode_pairs"]

_CHUNK = 10_000  # pairs that are tokenized at once


class Tokenizer(Protocol):
    """What `encode_pairs` needs; `SentencePieceTokenizer` and `SymbolTokenizer` have it."""

    def tokenize(self, text: Any, *, add_start: bool = ..., add_end: bool = ...) -> tf.RaggedTensor:
        """Texts (batch,) to token ids, int32 (batch, None)."""
        ...


@dataclasses.dataclass(frozen=True)
class EncodingReport:
    """What encoding kept and dropped: counts of pairs, and of the tokens that were kept."""

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
    """Pairs of texts as token ids.

    Attributes:
        source: token ids; each row ends with the end token.
        target: token ids; each row starts with the start token and ends with the end token.
        indices: (pairs,), the position of each pair among those that were read.
        report: what was kept and dropped.
    """

    source: TokenLists
    target: TokenLists
    indices: np.ndarray
    report: EncodingReport

    def __len__(self) -> int:
        return len(self.source)


def encode_pairs(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    *,
    max_sequence_length: int,
) -> EncodedPairs:
    """Tokenizes pairs; drops and counts those that nothing can be learned from.

    Args:
        pairs: (source, target).
        tokenizer: of the sources.
        target_tokenizer: of the targets; the same one by default.
        max_sequence_length: the model's positions for a source with its end token, and for a target
            with its start or its end token. Longer pairs are dropped.

    Returns:
        The pairs that fit and have tokens on both sides, in order.
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


def cut_anew(
    pairs: EncodedPairs,
    vocabulary: Sequence[str],
    target_vocabulary: Sequence[str],
    *,
    dropout: float,
    seed: int,
) -> Callable[[int], EncodedPairs]:
    """The same pairs, cut into other tokens in each epoch; see `BytePairDropout`.

    Args:
        pairs: what `encode_pairs` returned.
        vocabulary: of the sources' tokenizer, by id.
        target_vocabulary: of the targets' tokenizer.
        dropout: probability of leaving out a merge, on both sides; the paper takes 0.1.
        seed: of the run.

    Returns:
        Epoch, from 0 -> its pairs. A pair that became longer than `max_sequence_length` is left
        out of the epoch and counted in the epoch's report. Raises a ValueError if `dropout` is out
        of range.
    """
    source = BytePairDropout(vocabulary, pairs.source.values, pairs.source.lengths)
    target = BytePairDropout(target_vocabulary, pairs.target.values, pairs.target.lengths)

    @functools.lru_cache(maxsize=1)
    def of_epoch(epoch: int) -> EncodedPairs:
        return _keep(
            TokenLists(*source(dropout=dropout, seed=(seed, epoch, 0))),
            TokenLists(*target(dropout=dropout, seed=(seed, epoch, 1))),
            pairs.report.max_sequence_length,
            pairs.indices,
        )

    return of_epoch


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
    # A source without text is its end token; a target its start and its end, of which one counts.
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
