"""Draws segment pairs, [CLS] A [SEP] B [SEP], from a corpus of token ids.

The sentences of a document are contiguous in memory, so a segment is a range of tokens. Drawing a
pair yields only a few numbers; tokens are read when whole blocks of pairs are packed.
"""

import bisect
import dataclasses
import random
from collections.abc import Iterable
from typing import Annotated

import numpy as np
import tensorflow as tf

from keras_transformers.ranges import Fraction, PositiveInt, Range, Seed, Share, check_ranges
from keras_transformers.tokenizers import packing

# A pair: the documents of A and B, their tokens [start, stop), whether B is random (otherwise it
# follows A), and how many tokens both lost to truncation.
PAIR = np.dtype(
    [(name, np.int64) for name in ("document_a", "a_start", "a_stop")]
    + [(name, np.int64) for name in ("document_b", "b_start", "b_stop")]
    + [("is_random", np.bool_), ("num_truncated", np.int64)]
)
MIN_SEQUENCE_LENGTH = 5  # [CLS], [SEP], [SEP], and a token in each segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions:
    """Options for making examples; the defaults are those of Google's create_pretraining_data.

    Attributes:
        max_sequence_length: padded length of examples in tokens, [CLS] and [SEP]s included.
        max_predictions: maximum number of tokens to predict per example. The paper's 15 % are 20 of
            128 and 77 of 512.
        mask_probability: share of an example's tokens to predict; at least one token.
        whole_words: whether to mask whole words: all pieces of a word or none.
        dupe_factor: passes over the documents, each with different pairs and masks.
        short_sequence_probability: probability of a shorter target length for a whole document.
        num_shards: number of files.
        seed: 0 or more. The number of processes does not affect the files.

    Raises:
        ValueError: a value is out of range.
    """

    max_sequence_length: Annotated[int, Range(at_least=MIN_SEQUENCE_LENGTH)] = 128
    max_predictions: PositiveInt = 20
    mask_probability: Fraction = 0.15
    whole_words: bool = False
    dupe_factor: PositiveInt = 10
    short_sequence_probability: Share = 0.1
    num_shards: PositiveInt = 16
    seed: Seed = 12345

    def __post_init__(self) -> None:
        check_ranges(type(self), vars(self))


@dataclasses.dataclass(frozen=True)
class TokenizedCorpus:
    """Documents as token ids, laid end to end.

    Attributes:
        tokens: token ids of all sentences, (tokens,). No sentence is empty.
        sentence_starts: int64 (sentences + 1,), the index in `tokens` at which each sentence
            starts, then the number of tokens.
        document_starts: int64 (documents + 1,), the index of each document's first sentence, then
            the number of sentences. No document is empty.
    """

    tokens: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return len(self.document_starts) - 1

    def documents_of_pairs(self) -> np.ndarray:
        """Returns the documents with a true next sentence: those of at least two sentences."""
        return np.flatnonzero(np.diff(self.document_starts) > 1)


def draw_pairs(
    corpus: TokenizedCorpus,
    documents: Iterable[int],
    *,
    max_sequence_length: int,
    short_sequence_probability: float,
    seed: str,
) -> np.ndarray:
    """Draws pairs from documents, following Devlin et al. 2018, appendix A.2.

    A document is cut into runs of sentences that fill an example, and each run is cut in two at
    random. In half of the cases, sentences of another document replace the second part, which
    returns in the next run. Two things differ from Google's script. The script makes every
    one-sentence run a random pair, and therefore more than half of all pairs; here the choice is
    always random, and for a true pair the run gains the following sentence, or at the end of the
    document the preceding one. And random sentences never come from the same document.

    Args:
        corpus: a corpus of at least two documents.
        documents: indices of the documents to use, each of at least two sentences.
        max_sequence_length: longer pairs lose tokens at random ends of the longer segment.
        short_sequence_probability: see `PretrainingOptions`.
        seed: seed for all draws.

    Returns:
        (pairs,) of type `PAIR`, in the order of the documents.
    """
    drawer = _PairDrawer(
        corpus, max_sequence_length - 3, short_sequence_probability, random.Random(seed)
    )
    rows = [pair for document in documents for pair in drawer.pairs_of(int(document))]
    return np.array(rows, PAIR)


def pack_pairs(
    corpus: TokenizedCorpus,
    pairs: np.ndarray,
    *,
    cls_token_id: int,
    sep_token_id: int,
    pad_token_id: int,
    max_sequence_length: int,
) -> dict[str, tf.Tensor]:
    """Packs pairs (batch,) of type `PAIR` into the inputs of an encoder.

    Returns:
        token_ids int32, segment_ids int32, padding_mask bool, each (batch, max_sequence_length).
    """
    return packing.pack(
        [
            _segments(corpus, pairs["a_start"], pairs["a_stop"]),
            _segments(corpus, pairs["b_start"], pairs["b_stop"]),
        ],
        special_tokens=[[cls_token_id], [sep_token_id], [sep_token_id]],
        pad_token_id=pad_token_id,
        length=max_sequence_length,
    )


def _segments(corpus: TokenizedCorpus, start: np.ndarray, stop: np.ndarray) -> tf.RaggedTensor:
    lengths = stop - start
    skips = start - (np.cumsum(lengths) - lengths)
    values = corpus.tokens[np.repeat(skips, lengths) + np.arange(lengths.sum())]
    return tf.RaggedTensor.from_row_lengths(values.astype(np.int32), lengths, validate=False)


@dataclasses.dataclass(frozen=True)
class _PairDrawer:
    corpus: TokenizedCorpus
    max_tokens: int  # in both segments together
    short_sequence_probability: float
    random: random.Random

    def pairs_of(self, document: int) -> list[tuple[int | bool, ...]]:
        """Draws the pairs of one document; each is a row of `PAIR`."""
        first, last = self.corpus.document_starts[document : document + 2].tolist()
        starts = self.corpus.sentence_starts[first : last + 1].tolist()  # then the document's end
        num_sentences = last - first
        target = self.max_tokens
        if self.random.random() < self.short_sequence_probability:
            target = 2 + self._below(self.max_tokens - 1)
        pairs, begin = [], 0
        while begin < num_sentences:
            end = bisect.bisect_left(starts, starts[begin] + target, begin + 1, num_sentences)
            is_random = self.random.random() < 0.5
            if end - begin == 1 and not is_random:
                begin, end = (begin, end + 1) if end < num_sentences else (begin - 1, end)
            middle = begin + 1 + (self._below(end - begin - 1) if end - begin > 1 else 0)
            segment = starts[begin], starts[middle]
            if is_random:
                other, following = self._random_segment(document, target - segment[1] + segment[0])
                begin = middle  # the sentences that B replaced return
            else:
                other, following = document, (starts[middle], starts[end])
                begin = end
            pairs.append(self._pair(document, segment, other, following, is_random))
        return pairs

    def _random_segment(self, document: int, target: int) -> tuple[int, tuple[int, int]]:
        """Draws about `target` tokens of another document; returns the document and the range."""
        other = self._below(self.corpus.num_documents - 1)
        other += other >= document
        first, last = self.corpus.document_starts[other : other + 2].tolist()
        begin = first + self._below(last - first)
        starts = self.corpus.sentence_starts[begin : last + 1]
        end = 1 + int(np.searchsorted(starts[1:-1], starts[0] + target))
        return other, (int(starts[0]), int(starts[end]))

    def _pair(
        self,
        document_a: int,
        segment_a: tuple[int, int],
        document_b: int,
        segment_b: tuple[int, int],
        is_random: bool,
    ) -> tuple[int | bool, ...]:
        """Truncates the longer segment, or B if they are equal, until both fit."""
        num_a, num_b = segment_a[1] - segment_a[0], segment_b[1] - segment_b[0]
        excess = max(0, num_a + num_b - self.max_tokens)
        first_cut = min(excess, abs(num_a - num_b))
        cut_a = (excess - first_cut) // 2 + (first_cut if num_a > num_b else 0)
        a, b = self._cut(segment_a, cut_a), self._cut(segment_b, excess - cut_a)
        return (document_a, *a, document_b, *b, is_random, excess)

    def _cut(self, segment: tuple[int, int], count: int) -> tuple[int, int]:
        """Cuts off `count` tokens, each at a random end."""
        at_start = self.random.getrandbits(count).bit_count() if count else 0
        return segment[0] + at_start, segment[1] - (count - at_start)

    def _below(self, count: int) -> int:
        return int(self.random.random() * count)
