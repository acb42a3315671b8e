"""Batches of sentences with a label for each word, that `model.fit` takes.

    conll.load -> encode -> dataset -> model -> labels_from_logits

A sentence is read as a text, its words with a space between them. The label is that of the first
token of each word, and the other tokens have weight 0 (Devlin et al. 2018, section 5.3). A sentence
that is longer than the encoder's positions takes several windows that overlap, and each word counts
in one of them: no word is lost. Words that have no tokens at all (a lone zero-width character) are
counted, and labelled O.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data import batching
from keras_transformers.data.text.conll import OUTSIDE, Sentences
from keras_transformers.tokenizers import windows
from keras_transformers.tokenizers import words as running_words

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What encoding did: counts."""

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


@dataclasses.dataclass(frozen=True)
class EncodedSentences:
    """Sentences in tokens, and the windows over them.

    Attributes:
        sentences: as they were read.
        token_ids: int32 (sentences, None), without special tokens.
        words: int32 (sentences, None), for the first token of a word its index in the sentence,
            for the others -1.
        windows: which tokens a window holds.
        owned: int64 (windows, 2), first token in the window whose word counts there, and the last
            one's successor.
        max_sequence_length: of a window, special tokens included.
        tokenizer: that made the tokens and packs them.
    """

    sentences: Sentences
    token_ids: tf.RaggedTensor
    words: tf.RaggedTensor
    windows: windows.Windows
    owned: tf.Tensor
    max_sequence_length: int
    tokenizer: Any

    @property
    def lengths(self) -> np.ndarray:
        """Of the windows, in tokens, special ones included: int64 (windows,)."""
        return self.windows.lengths.numpy() + self.tokenizer.num_special_tokens(1)

    @property
    def statistics(self) -> Statistics:
        """What to report about the encoding."""
        counts = np.bincount(self.windows.rows.numpy(), minlength=len(self.sentences))
        num_words = sum(len(words) for words in self.sentences.words)
        return Statistics(
            self.sentences.source,
            len(self.sentences),
            num_words,
            len(self.token_ids.values),
            int(np.sum(counts > 1)),
            len(self.windows.rows),
            num_words - int(np.sum(self.words.values.numpy() >= 0)),
        )


def encode(
    sentences: Sentences, tokenizer: Any, *, max_sequence_length: int
) -> EncodedSentences:
    """Cuts sentences into tokens, and these into windows. Logs the statistics.

    Windows of a long sentence overlap by half, so that every word has a quarter of a window of
    context on both sides, or all there is.

    Args:
        sentences: what to encode.
        tokenizer: gives offsets.
        max_sequence_length: in tokens, special ones included.

    Raises:
        ValueError: there are no sentences, or `max_sequence_length` has no room for one token
            beside the special ones.
    """
    if not len(sentences):
        raise ValueError(f"{sentences.source}: no sentences")
    num_special = tokenizer.num_special_tokens(1)
    if max_sequence_length <= num_special:
        raise ValueError(
            f"max_sequence_length={max_sequence_length}: special tokens take {num_special}; give "
            "more"
        )
    words = tf.RaggedTensor.from_row_lengths(
        tf.constant([word for words in sentences.words for word in words], tf.string),
        tf.constant([len(words) for words in sentences.words], tf.int64),
    )
    text, starts, ends = running_words.join(words)
    token_ids, *bounds = tokenizer.tokenize_with_offsets(text)
    first, has_tokens = running_words.first_tokens(starts, ends, *bounds)
    index = np.concatenate([np.arange(len(words), dtype=np.int32) for words in sentences.words])
    word_at = np.full(len(token_ids.values), -1, np.int32)  # (tokens,)
    word_at[first.numpy()[has_tokens]] = index[has_tokens]
    halves = windows.plan_halves(token_ids.row_lengths(), max_sequence_length - num_special)
    encoded = EncodedSentences(
        sentences,
        token_ids,
        token_ids.with_values(word_at),
        halves.windows,
        _owned(halves, token_ids.row_lengths()),
        max_sequence_length,
        tokenizer,
    )
    _logger.info("%s", encoded.statistics)
    return encoded


def dataset(
    encoded: EncodedSentences,
    labels: Sequence[str] | None,
    *,
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches of (inputs, {"logits": label ids}, {"logits": weights}), one pass over the windows.

    The inputs are those that the tokenizer packs; label ids int32 and weights float32 have their
    shape, (batch, length). The weight is 1 at the first token of each word, once for each word,
    else 0. A batch is as long as its longest window; shuffled batches hold windows of about the
    same length. Compile the model with `weighted_metrics`: `metrics` know no weights.

    Args:
        encoded: what to batch.
        labels: label -> id is its position here. None: no targets, only the inputs dict.
        batch_size: windows per batch; the last one may be smaller.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: a batch size below 1, or a label that is not in `labels`.
    """
    label_ids = None if labels is None else _label_ids(encoded.sentences, labels)

    def batch(indices: tf.Tensor) -> Any:
        chosen = windows.Windows(*(tf.gather(part, indices) for part in encoded.windows))
        inputs = encoded.tokenizer.pack(
            [windows.cut(encoded.token_ids, chosen)],
            max_sequence_length=encoded.max_sequence_length,
        )
        if label_ids is None:
            return inputs
        words = _word_at(encoded, indices)  # (batch, length), -1 where there is no label
        of_row = tf.gather(label_ids.row_starts(), chosen.rows)[:, None]  # (batch, 1)
        is_word = words >= 0
        position = tf.where(is_word, of_row + tf.cast(words, tf.int64), 0)
        targets = tf.where(is_word, tf.gather(label_ids.values, position), 0)
        return inputs, {"logits": targets}, {"logits": tf.cast(is_word, tf.float32)}

    batches = batching.index_batches(
        encoded.lengths, batch_size=batch_size, shuffle=shuffle, seed=seed
    )
    return batches.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(
        tf.data.AUTOTUNE
    )


def labels_from_logits(
    encoded: EncodedSentences, outputs: Iterable[Mapping[str, Any]], labels: Sequence[str]
) -> list[list[str]]:
    """The most likely label of each word.

    >>> labels_from_logits(  # doctest: +SKIP
    ...     encoded, map(model.predict_on_batch, dataset(encoded, None, batch_size=32)), labels
    ... )

    Args:
        encoded: what the model was asked about.
        outputs: of the model, for each batch of `dataset(encoded, None, ...)`, unshuffled:
            `logits` (batch, length, labels). Padding may be of any length.
        labels: in the order of their ids.

    Returns:
        For each sentence as many labels as it has words; O for words without tokens.

    Raises:
        ValueError: there are more windows than logits, or fewer, or the logits are of another
            number of labels.
    """
    found = [[OUTSIDE] * len(words) for words in encoded.sentences.words]
    rows = encoded.windows.rows.numpy()
    start = 0
    for output in outputs:
        batch = np.asarray(output["logits"])
        indices = np.arange(start, start + len(batch))
        start += len(batch)
        if start > len(rows) or batch.ndim != 3 or batch.shape[-1] != len(labels):
            raise ValueError(
                f"logits of shape {batch.shape} for windows {indices[0]} to {indices[-1]} of "
                f"{len(rows)}: expected (batch, length, {len(labels)}) for all windows in order"
            )
        words = _word_at(encoded, tf.constant(indices)).numpy()
        best = batch[:, : words.shape[1]].argmax(axis=-1)
        for window, position in np.argwhere(words >= 0):
            word = words[window, position]
            found[rows[indices[window]]][word] = labels[best[window, position]]
    if start < len(rows):
        raise ValueError(f"logits of {start} windows, there are {len(rows)}")
    return found


def _owned(halves: windows.Halves, num_tokens: tf.Tensor) -> tf.Tensor:
    """From which token to which a window's words count: int64 (windows, 2)."""
    (rows, starts, lengths), step, lead = halves
    begins = tf.where(starts == 0, tf.zeros_like(starts), lead)
    is_last = starts + lengths == tf.gather(num_tokens, rows)
    return tf.stack([begins, tf.where(is_last, lengths, lead + step)], axis=1)


def _word_at(encoded: EncodedSentences, indices: tf.Tensor) -> tf.Tensor:
    """The word whose label counts at each position of windows, else -1: int32 (batch, length)."""
    chosen = windows.Windows(*(tf.gather(part, indices) for part in encoded.windows))
    words = windows.cut(encoded.words, chosen).to_tensor(-1)  # (batch, tokens)
    owned = tf.gather(encoded.owned, indices)  # (batch, 2)
    position = tf.range(tf.shape(words, tf.int64)[1])
    is_owned = (position >= owned[:, :1]) & (position < owned[:, 1:])
    num_special = [len(tokens) for tokens in encoded.tokenizer.special_tokens(1)]
    return tf.pad(tf.where(is_owned, words, -1), [[0, 0], num_special], constant_values=-1)


def _label_ids(sentences: Sentences, labels: Sequence[str]) -> tf.RaggedTensor:
    """int32 (sentences, None)."""
    if sentences.labels is None:
        raise ValueError(f"{sentences.source}: sentences without labels cannot be targets")
    ids = {label: i for i, label in enumerate(labels)}
    unknown = sorted({label for row in sentences.labels for label in row} - set(ids))
    if unknown:
        raise ValueError(f"{sentences.source}: unknown labels {unknown}, expected {list(labels)}")
    return tf.RaggedTensor.from_row_lengths(
        np.array([ids[label] for row in sentences.labels for label in row], np.int32),
        tf.constant([len(row) for row in sentences.labels], tf.int64),
    )
