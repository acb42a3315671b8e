"""Turns running text into batches of words for ELMo's bidirectional language model.

    read_documents -> make_texts -> WindowBatches

A document is one stream, `<S> w w w </S> <S> w w </S>`, cut into windows that overlap by one token.
Forwards, each token except the first is predicted exactly once; backwards, each except the last.
`<S>` in the forward direction and `</S>` in the backward one are certain, so they do not count.
Each direction counts every word and one mark per sentence.

Unlike in bilm-tf, no state is carried over to the next window. The two directions would need it in
opposite orders, for which bilm-tf gives them different text at each step, and the single sentences
of downstream tasks have no earlier state either. The first words of a window therefore have little
context, which hurts more the shorter the windows are.
"""

import dataclasses
import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches
from keras_transformers.data.pretraining.documents import Document, split_documents
from keras_transformers.data.translation.token_batches import TokenLists
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.tokenizers.word_vocabulary import (
    BEGIN_ID,
    END_ID,
    UNKNOWN_ID,
    WordVocabulary,
)
from keras_transformers.tokenizers.words import split as split_words

__all__ = ["RunningText", "WindowBatches", "make_texts"]

_logger = logging.getLogger(__name__)

_SENTENCES_AT_ONCE = 4096  # cut into words together
# The first rows of the tables in `RunningText`; words follow.
_PADDING, _BEGIN, _END = range(3)
_NUM_MARKS = 3


@dataclasses.dataclass(frozen=True)
class Words:
    """Documents as indices into a list of their distinct words.

    Attributes:
        spellings: the distinct words.
        counts: how often each occurs, int64 (spellings,).
        indices: index into `spellings` of each word of the text, int32 (words,).
        sentence_lengths: words in each sentence, int64 (sentences,).
        document_lengths: sentences in each document, int64 (documents,).
    """

    spellings: Sequence[str]
    counts: np.ndarray
    indices: np.ndarray
    sentence_lengths: np.ndarray
    document_lengths: np.ndarray


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of what was encoded."""

    num_documents: int
    num_sentences: int
    num_words: int
    num_unknown: int
    num_cut: int

    def __str__(self) -> str:
        share = 100 * self.num_unknown / max(1, self.num_words)
        return (
            f"{self.num_documents} documents, {self.num_sentences} sentences, {self.num_words} "
            f"words, {self.num_unknown} of them ({share:.1f}%) not in the vocabulary, "
            f"{self.num_cut} too long and truncated"
        )


@dataclasses.dataclass(frozen=True)
class RunningText:
    """Documents as streams of tokens, with tables of their spellings and ids.

    Attributes:
        documents: one list of table rows per document.
        character_ids: uint16 (rows, max_characters); row 0 is padding, row 1 `<S>`, row 2 `</S>`.
        token_ids: ids in the vocabulary, int32 (rows,).
        vocabulary_size: number of words in the vocabulary.
        statistics: counts for the log.
    """

    documents: TokenLists
    character_ids: np.ndarray
    token_ids: np.ndarray
    vocabulary_size: int
    statistics: Statistics
    start_id: ClassVar[int] = BEGIN_ID
    end_id: ClassVar[int] = END_ID

    def sequences(self) -> list[np.ndarray]:
        """Returns the token ids of each document, marks included: int32 (tokens,) each."""
        ids = self.token_ids[self.documents.values]
        return np.split(ids, np.cumsum(self.documents.lengths)[:-1])

    def token_counts(self) -> np.ndarray:
        """Returns how often each token is a forward target: int64 (vocabulary_size,)."""
        ids = self.token_ids[self.documents.values]
        return np.bincount(ids[ids != BEGIN_ID], minlength=self.vocabulary_size)


def make_texts(
    documents: Iterable[Document],
    *,
    dev_fraction: float = 0.05,
    vocabulary: str | os.PathLike[str] | None = None,
    vocabulary_size: int = 30_000,
    min_frequency: int = 2,
    max_characters: int = 50,
) -> tuple[RunningText, RunningText, WordVocabulary]:
    """Makes a training text, an evaluation text and the vocabulary of predicted words.

    Args:
        documents: documents to split with `split_documents`.
        dev_fraction: probability that a document is held out, above 0 and below 1.
        vocabulary: a file with one word per line; None learns one from the training documents.
        vocabulary_size: size of a learned vocabulary.
        min_frequency: see `WordVocabulary.learn`.
        max_characters: see `encode`.

    Raises:
        FileNotFoundError: the vocabulary file does not exist.
        ValueError: there is too little text, a number is out of range, or the file is not a
            vocabulary.
    """
    parts = split_documents(documents, held_out_share=dev_fraction)
    train, dev = (cut(part) for part in parts)
    if vocabulary is not None:
        words = WordVocabulary.read(vocabulary)
    else:
        words = WordVocabulary.learn(
            train.spellings,
            train.counts,
            vocabulary_size=vocabulary_size,
            min_frequency=min_frequency,
        )
    train_text, dev_text = (
        encode(part, words, max_characters=max_characters) for part in (train, dev)
    )
    return train_text, dev_text, words


def cut(documents: Iterable[Document]) -> Words:
    """Cuts sentences into words, as `tokenizers.words.spans` does.

    Raises:
        ValueError: there are no sentences.
    """
    documents = list(documents)
    sentences = itertools.chain.from_iterable(documents)
    numbers: dict[bytes, int] = {}
    indices, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    while batch := list(itertools.islice(sentences, _SENTENCES_AT_ONCE)):
        words = split_words(batch)
        lengths.append(words.row_lengths().numpy())
        tokens = words.values.numpy()
        numbered = (numbers.setdefault(word, len(numbers)) for word in tokens)
        indices.append(np.fromiter(numbered, np.int32, len(tokens)))
    if len(lengths) == 1:
        raise ValueError(f"no sentences in {len(documents)} documents: use some text")
    index = np.concatenate(indices)
    return Words(
        [word.decode() for word in numbers],
        np.bincount(index, minlength=len(numbers)),
        index,
        np.concatenate(lengths),
        np.array([len(document) for document in documents], np.int64),
    )


def encode(words: Words, vocabulary: WordVocabulary, *, max_characters: int = 50) -> RunningText:
    """Converts words to character ids and token ids, and logs the `statistics`.

    Args:
        words: words of a text.
        vocabulary: words that the model predicts; others get the id of `<UNK>` but keep their
            spelling.
        max_characters: character ids per word, two marks included; longer words are truncated.
    """
    tokenizer = CharacterTokenizer(max_characters=max_characters)
    spellings = tf.constant(words.spellings, tf.string)
    # An empty text yields just the two marks, and padding.
    marks = tokenizer(tf.constant([""]))["character_ids"][0].numpy()
    table = np.concatenate([np.zeros_like(marks[:1]), marks, tokenizer.encode_words(spellings)])
    ids = vocabulary.ids(words.spellings)
    num_sentences = len(words.sentence_lengths)
    # The words of a sentence come after the marks of all earlier sentences and its own <S>.
    sentence = np.repeat(np.arange(num_sentences), words.sentence_lengths)
    ends = np.cumsum(words.sentence_lengths) + 2 * np.arange(num_sentences) + 1
    stream = np.full(len(words.indices) + 2 * num_sentences, _BEGIN, np.int32)
    stream[ends] = _END
    stream[np.arange(len(words.indices)) + 2 * sentence + 1] = words.indices + _NUM_MARKS
    words_before = np.concatenate([[0], np.cumsum(words.sentence_lengths)])
    sentences_before = np.concatenate([[0], np.cumsum(words.document_lengths)])
    documents = np.diff(words_before[sentences_before]) + 2 * words.document_lengths
    is_cut = np.array([len(word.encode()) > max_characters - 2 for word in words.spellings], bool)
    statistics = Statistics(
        num_documents=len(documents),
        num_sentences=num_sentences,
        num_words=len(words.indices),
        num_unknown=int(words.counts @ (ids == UNKNOWN_ID)),
        num_cut=int(words.counts @ is_cut),
    )
    _logger.info("%s", statistics)
    return RunningText(
        TokenLists(stream, documents),
        table.astype(np.uint16),
        np.concatenate([[0, BEGIN_ID, END_ID], ids]).astype(np.int32),
        len(vocabulary),
        statistics,
    )


def plan_windows(lengths: np.ndarray, window_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Plans windows over lists laid end to end; each overlaps the previous one by one token.

    Args:
        lengths: lengths of the lists, int64 (lists,); lists of fewer than two tokens get no window.
        window_length: tokens per window; the last window of a list may be shorter.

    Returns:
        The start of each window among all tokens, and its length, int64 (windows,) each.

    Raises:
        ValueError: the window has no token to predict.
    """
    if window_length < 2:
        raise ValueError(f"window_length={window_length}: nothing to predict, expected at least 2")
    step = window_length - 1
    counts = np.maximum(0, -(-(lengths - 1) // step))  # rounded up
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = number * step
    ends = np.minimum(starts + window_length, np.repeat(lengths, counts))
    return np.repeat(np.cumsum(lengths) - lengths, counts) + starts, ends - starts


class WindowBatches(LengthBatches):
    """Batches for training a model from `models.elmo.language_model`.

    An element is `(inputs, targets, sample_weights)`:
      - inputs: `character_ids` int32 (batch, length, max_characters), `token_ids` int32 (batch,
        length).
      - targets: `forward_loss` and `backward_loss`, zeros (batch, length - 1), since the model
        outputs its losses.
      - sample_weights: the same names, float32 (batch, length - 1), 1 where a loss counts.

    Args:
        text: text to batch.
        window_length: tokens per window.
        batch_size: windows per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        steps_per_epoch: batches per epoch of endless, shuffled batches; windows of similar length
            share a batch. None makes one pass in order.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`.

    Raises:
        ValueError: the batch size is below 1, or the window length is below 2.
    """

    def __init__(
        self,
        text: RunningText,
        *,
        window_length: int,
        batch_size: int,
        accumulate: int = 1,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        static_shapes: int | None = None,
    ) -> None:
        starts, lengths = plan_windows(text.documents.lengths, window_length)
        super().__init__(
            lengths,
            batch_size=batch_size * accumulate,
            shuffle=steps_per_epoch is not None,
            seed=seed,
            static_shapes=static_shapes,
        )
        self._window_length = window_length
        self._row_size = batch_size
        self._steps_per_epoch = steps_per_epoch
        if steps_per_epoch is not None:
            self.num_rows = self.batch_size * steps_per_epoch
        self._starts = tf.constant(starts, tf.int32)
        self._lengths = tf.constant(lengths, tf.int32)
        self._stream = tf.constant(text.documents.values)
        self._characters = tf.constant(text.character_ids)
        self._ids = tf.constant(text.token_ids)

    def __len__(self) -> int:
        return self._steps_per_epoch or super().__len__()

    def batch(self, indices: tf.Tensor) -> tuple[dict[str, tf.Tensor], ...]:
        """Returns the windows at `indices`, int32 (batch,); runs in graphs."""
        length = tf.gather(self._lengths, indices)[:, None]  # (batch, 1)
        place = tf.range(tf.reduce_max(length))
        is_real = place < length  # (batch, length)
        at = tf.where(is_real, tf.gather(self._starts, indices)[:, None] + place, 0)
        rows = tf.where(is_real, tf.gather(self._stream, at), _PADDING)
        counted = {
            "forward_loss": is_real[:, 1:] & (rows[:, 1:] != _BEGIN),
            "backward_loss": is_real[:, 1:] & (rows[:, :-1] != _END),
        }
        weights = {name: tf.cast(mask, tf.float32) for name, mask in counted.items()}
        inputs = {
            "character_ids": tf.cast(tf.gather(self._characters, rows), tf.int32),
            "token_ids": tf.gather(self._ids, rows),
        }
        return inputs, {name: tf.zeros_like(weight) for name, weight in weights.items()}, weights

    def of(self, examples: RunningText) -> Self:
        """Returns the windows of another text, in order, for evaluation."""
        return type(self)(
            examples,
            window_length=self._window_length,
            batch_size=self._row_size,
            static_shapes=self.static_shapes,
        )
