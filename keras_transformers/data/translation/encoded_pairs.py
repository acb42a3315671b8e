"""Tokenizes text pairs in memory, once or differently in each epoch."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.data.translation.parallel_text import Pair
from keras_transformers.data.translation.token_batches import TokenLists
from keras_transformers.tokenizers.bpe_dropout import BytePairDropout
from keras_transformers.tokenizers.packing import ends_of_sources, join
from keras_transformers.tokenizers.protocols import TargetTokenizer

__all__ = ["EncodedPairs", "EncodingReport", "encode_pairs"]

_CHUNK = 10_000  # pairs tokenized together


@dataclasses.dataclass(frozen=True)
class EncodingReport:
    """Counts of the pairs kept and dropped, and of the tokens kept."""

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
        source: token ids; each row ends with the end token, or has the special tokens of a
            pretrained encoder around it.
        target: token ids; each row starts with the start token and ends with the end token.
        indices: position of each pair in the input, (pairs,).
        report: counts of what was kept and dropped.
    """

    source: TokenLists
    target: TokenLists
    indices: np.ndarray
    report: EncodingReport

    def __len__(self) -> int:
        return len(self.source)


def encode_pairs(
    pairs: Iterable[Pair],
    tokenizer: TargetTokenizer,
    target_tokenizer: TargetTokenizer | None = None,
    *,
    max_sequence_length: int,
) -> EncodedPairs:
    """Tokenizes pairs; drops and counts those that are too long or have an empty side.

    Args:
        pairs: (source, target) texts.
        tokenizer: tokenizer for the sources, possibly a pretrained encoder's.
        target_tokenizer: tokenizer for the targets; by default the same one.
        max_sequence_length: maximum length of a source with its end token, and of a target with its
            start or end token.

    Returns:
        The remaining pairs, in order.
    """
    target_tokenizer = target_tokenizer or tokenizer
    ends = ends_of_sources(tokenizer)
    sources: list[tf.RaggedTensor] = []
    targets: list[tf.RaggedTensor] = []
    remaining = iter(pairs)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        source_texts, target_texts = zip(*chunk, strict=True)
        sources.append(join([tokenizer.tokenize(source_texts)], ends))
        targets.append(target_tokenizer.tokenize(target_texts, add_start=True, add_end=True))
    # What stands around every text: special tokens, and those of its language.
    empty_source = join([tokenizer.tokenize([""])], ends)
    empty_target = target_tokenizer.tokenize([""], add_start=True, add_end=True)
    around = (len(empty_source[0]), len(empty_target[0]))
    return _keep(_join(sources), _join(targets), max_sequence_length, around=around)


def cut_anew(
    pairs: EncodedPairs,
    vocabulary: Sequence[str],
    target_vocabulary: Sequence[str],
    *,
    dropout: float,
    seed: int,
) -> Callable[[int], EncodedPairs]:
    """Tokenizes the same pairs differently in each epoch; see `BytePairDropout`.

    Args:
        pairs: pairs from `encode_pairs`.
        vocabulary: tokens of the source tokenizer, by id.
        target_vocabulary: tokens of the target tokenizer, by id.
        dropout: probability of skipping a merge, on both sides; 0.1 in the paper.
        seed: seed of the run.

    Returns:
        A function from the epoch, starting at 0, to its pairs. Pairs that become longer than
        `max_sequence_length` are dropped from the epoch and counted in its report. The function
        raises a ValueError if `dropout` is out of range.
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
    *,
    around: tuple[int, int] = (1, 2),
) -> EncodedPairs:
    """Drops and counts the pairs with an empty side or a side that is too long.

    `around` is how many tokens an empty source and an empty target have; of a target's start and
    end, one counts.
    """
    is_empty = (source.lengths <= around[0]) | (target.lengths <= around[1])
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
