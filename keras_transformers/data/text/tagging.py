"""Batches sentences with one label per word, and turns logits into labels.

The words of a sentence are joined by spaces. A word's label goes to its first token; the other
tokens have weight 0 (Devlin et al. 2018, section 5.3). A sentence longer than the encoder's
positions is split into overlapping windows, and each word counts in exactly one of them. Words
without tokens (such as a lone zero-width character) are counted and labelled O.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.classification import counted
from keras_transformers.data.text.conll import OUTSIDE, Sentences
from keras_transformers.data.weighting import ClassWeight
from keras_transformers.tokenizers import windows
from keras_transformers.tokenizers import words as running_words
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["TaggedBatches"]

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of sentences, words, tokens and windows."""

    source: str
    num_sentences: int
    num_words: int
    num_tokens: int
    num_split: int
    num_windows: int
    num_without_tokens: int

    def __str__(self) -> str:
        return (
            f"{self.source}: {self.num_sentences} sentences, {self.num_words} words, "
            f"{self.num_tokens} tokens in {self.num_windows} windows, "
            f"{self.num_split} sentences in more than one; "
            f"{self.num_without_tokens} words without tokens are labelled {OUTSIDE}"
        )


class TaggedBatches(LengthBatches):
    """Batches of (inputs, {"logits": label ids}, {"logits": weights}).

    Rows are windows of sentences. The windows of a long sentence overlap by half, so that each word
    has at least a quarter of a window of context on both sides, or all there is. Label ids, int32,
    and weights, float32, are (batch, length). The weight is 1 at the first token of each word, once
    per word, else 0: compile with `weighted_metrics`, since `metrics` ignore weights.

    The constructor tokenizes the sentences and logs `statistics`.

    Args:
        sentences: sentences to batch; without labels the batches contain only inputs.
        tagger: a `pipelines.Tagger`, which tokenizes and packs.
        batch_size: windows per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`.
        class_weight: "balanced", or label -> the weight of its words, 1 for other labels, times the
            sentence's weight. Batches made with `of` have no such weights.

    Attributes:
        statistics: counts of sentences, words, tokens and windows.

    Raises:
        ValueError: there are no sentences, the batch size is below 1, or the tagger does not know a
            label.
    """

    def __init__(
        self,
        sentences: Sentences,
        tagger: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
        class_weight: ClassWeight | None = None,
    ) -> None:
        if not len(sentences):
            raise ValueError(f"{sentences.source}: no sentences")
        self.sentences = sentences
        self.tagger = tagger
        self._row_size = batch_size
        self._label_ids = None
        class_counts = None
        if sentences.labels is not None:
            self._label_ids = label_ids(sentences, tagger.labels)
            class_counts = counted((x for row in sentences.labels for x in row), tagger.labels)
        self._token_ids, self._words = _tokens_and_words(sentences, tagger.tokenizer)
        num_special = tagger.tokenizer.num_special_tokens(1)
        num_tokens = self._token_ids.row_lengths()
        halves = windows.plan_halves(num_tokens, tagger.max_sequence_length - num_special)
        self._windows = halves.windows
        self._owned = _owned(halves, num_tokens)
        weights = None
        if sentences.weights is not None:
            weights = np.array(sentences.weights)[self._windows.rows.numpy()]
        super().__init__(
            self._windows.lengths.numpy() + num_special,
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
            static_shapes=static_shapes,
            weights=weights,
            class_counts=class_counts,
            class_weight=class_weight,
        )
        self.statistics = self._statistics()
        _logger.info("%s", self.statistics)

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the windows at `indices`, int32 (batch,); runs in graphs."""
        chosen = self._chosen(indices)
        inputs = self.tagger.pack([windows.cut(self._token_ids, chosen)])
        if self._label_ids is None:
            return inputs
        words = self._word_at(indices)  # (batch, length), -1 if there is no label
        of_row = tf.gather(self._label_ids.row_starts(), chosen.rows)[:, None]  # (batch, 1)
        is_word = words >= 0
        position = tf.where(is_word, of_row + tf.cast(words, tf.int64), 0)
        targets = tf.where(is_word, tf.gather(self._label_ids.values, position), 0)
        return inputs, {"logits": targets}, {"logits": tf.cast(is_word, tf.float32)}

    def of(self, sentences: Sentences) -> Self:
        """Returns batches of other sentences, made the same way but in order."""
        return type(self)(
            dataclasses.replace(sentences, weights=None),
            self.tagger,
            batch_size=self._row_size,
            shuffle=False,
            static_shapes=self.static_shapes,
        )

    def samples(self, count: int) -> Samples:
        """Returns the first sentences with their labels."""
        texts, labels = (
            [" ".join(row) for row in rows[:count]]
            for rows in (self.sentences.words, self.sentences.labels or ())
        )
        return Samples(self.tagger, {"text": texts}, labels)

    def word_labels(self, outputs: Iterable[Mapping[str, Any]]) -> list[list[str]]:
        """Returns the most likely label of each word; the batches must be in order.

        >>> batches.word_labels(outputs_of(model, batches))  # doctest: +SKIP

        Args:
            outputs: model outputs for each batch: `logits` (batch, length, labels), padded to any
                length.

        Returns:
            One label per word of each sentence; O for words without tokens.

        Raises:
            ValueError: the logits do not match the windows or the labels in number.
        """
        return self.word_answers(outputs)[0]

    def word_answers(
        self, outputs: Iterable[Mapping[str, Any]]
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Returns the most likely label of each word and its probability, 0 without tokens.

        Args:
            outputs: see `word_labels`.

        Raises:
            ValueError: see `word_labels`.
        """
        labels = self.tagger.labels
        tags = [[OUTSIDE] * len(words) for words in self.sentences.words]
        scores = [[0.0] * len(words) for words in self.sentences.words]
        rows = self._windows.rows.numpy()
        start = 0
        for output in outputs:
            logits = np.asarray(output["logits"])
            indices = np.arange(start, start + len(logits))
            start += len(logits)
            if start > len(rows) or logits.ndim != 3 or logits.shape[-1] != len(labels):
                raise ValueError(
                    f"logits of shape {logits.shape} for windows {indices[0]} to {indices[-1]} of "
                    f"{len(rows)}: expected (batch, length, {len(labels)}) for all windows in order"
                )
            words = self._word_at(tf.constant(indices)).numpy()
            logits = logits[:, : words.shape[1]].astype(np.float64)
            best, highest = logits.argmax(axis=-1), logits.max(axis=-1, keepdims=True)
            probability = 1 / np.exp(logits - highest).sum(axis=-1)
            for window, position in np.argwhere(words >= 0):
                sentence, word = rows[indices[window]], words[window, position]
                tags[sentence][word] = labels[best[window, position]]
                scores[sentence][word] = float(probability[window, position])
        if start < len(rows):
            raise ValueError(f"logits of {start} windows, but there are {len(rows)}")
        return tags, scores

    def _chosen(self, indices: tf.Tensor) -> windows.Windows:
        return windows.Windows(*(tf.gather(part, indices) for part in self._windows))

    def _word_at(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns the word whose label counts at each position, else -1: (batch, length)."""
        words = windows.cut(self._words, self._chosen(indices)).to_tensor(-1)  # (batch, tokens)
        owned = tf.gather(self._owned, indices)  # (batch, 2)
        position = tf.range(tf.shape(words, tf.int64)[1])
        is_owned = (position >= owned[:, :1]) & (position < owned[:, 1:])
        num_special = [len(tokens) for tokens in self.tagger.tokenizer.special_tokens(1)]
        return tf.pad(tf.where(is_owned, words, -1), [[0, 0], num_special], constant_values=-1)

    def _statistics(self) -> Statistics:
        counts = np.bincount(self._windows.rows.numpy(), minlength=len(self.sentences))
        num_words = sum(len(words) for words in self.sentences.words)
        return Statistics(
            self.sentences.source,
            len(self.sentences),
            num_words,
            len(self._token_ids.values),
            int(np.sum(counts > 1)),
            self.num_rows,
            num_words - int(np.sum(self._words.values.numpy() >= 0)),
        )


def label_ids(sentences: Sentences, labels: Sequence[str]) -> tf.RaggedTensor:
    """Returns each word's index in `labels`: int32 (sentences, None)."""
    rows = sentences.labels or ()
    ids = {label: i for i, label in enumerate(labels)}
    unknown = sorted({label for row in rows for label in row} - set(ids))
    if unknown:
        raise ValueError(f"{sentences.source}: unknown labels {unknown}, expected {list(labels)}")
    return tf.RaggedTensor.from_row_lengths(
        np.array([ids[label] for row in rows for label in row], np.int32),
        tf.constant([len(row) for row in rows], tf.int64),
    )


def _tokens_and_words(
    sentences: Sentences, tokenizer: Any
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the tokens of sentences, and the index of the word that each token starts, or -1.

    Both are int32 (sentences, None), without special tokens.
    """
    words = tf.RaggedTensor.from_row_lengths(
        texts_of(
            [word for words in sentences.words for word in words], f"{sentences.source}: words"
        ),
        tf.constant([len(words) for words in sentences.words], tf.int64),
    )
    text, starts, ends = running_words.join(words)
    token_ids, *bounds = tokenizer.tokenize_with_offsets(text)
    first, has_tokens = running_words.first_tokens(starts, ends, *bounds)
    index = np.concatenate([np.arange(len(words), dtype=np.int32) for words in sentences.words])
    word_at = np.full(len(token_ids.values), -1, np.int32)  # (tokens,)
    word_at[first.numpy()[has_tokens]] = index[has_tokens]
    return token_ids, token_ids.with_values(word_at)


def _owned(halves: windows.Halves, num_tokens: tf.Tensor) -> tf.Tensor:
    """Returns the range of tokens in each window whose words count there: int64 (windows, 2)."""
    (rows, starts, lengths), step, lead = halves
    begins = tf.where(starts == 0, tf.zeros_like(starts), lead)
    is_last = starts + lengths == tf.gather(num_tokens, rows)
    return tf.stack([begins, tf.where(is_last, lengths, lead + step)], axis=1)
