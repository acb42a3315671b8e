"""Batches of sentences with a label for each word, that `model.fit` takes.

    conll.load -> encode -> dataset -> model -> labels_from_logits

Words are cut into word pieces; the label stands at the first piece of each word, and the other
pieces have weight 0 (Devlin et al. 2018, section 5.3). A sentence that is longer than the
encoder's positions takes several windows that overlap, and each word counts in one of them: no
word is lost. Words that have no pieces at all (a lone zero-width character) are counted, and
labelled O.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data import batching
from keras_transformers.data.text.conll import OUTSIDE, Sentences
from keras_transformers.tokenizers import WordPieceTokenizer, packing, windows

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
    num_without_pieces: int

    def __str__(self) -> str:
        return (
            f"{self.source}: {self.num_sentences} sentences, {self.num_words} words, "
            f"{self.num_tokens} word pieces in {self.num_windows} windows, "
            f"{self.num_split} sentences in more than one; "
            f"{self.num_without_pieces} words without pieces are labelled {OUTSIDE}"
        )


@dataclasses.dataclass(frozen=True)
class EncodedSentences:
    """Sentences in word pieces, and the windows over them.

    Attributes:
        sentences: as they were read.
        token_ids: int32 (sentences, None), without [CLS] and [SEP].
        words: int32 (sentences, None), for the first piece of a word its index in the sentence,
            for the others -1.
        windows: which pieces a window holds.
        owned: int64 (windows, 2), first piece in the window whose word counts there, and the last
            one's successor.
        tokenizer: that made the pieces.
    """

    sentences: Sentences
    token_ids: tf.RaggedTensor
    words: tf.RaggedTensor
    windows: windows.Windows
    owned: tf.Tensor
    tokenizer: WordPieceTokenizer

    @property
    def lengths(self) -> np.ndarray:
        """Of the windows, in tokens, [CLS] and [SEP] included: int64 (windows,)."""
        return self.windows.lengths.numpy() + 2

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
    sentences: Sentences, tokenizer: WordPieceTokenizer, *, max_sequence_length: int
) -> EncodedSentences:
    """Cuts words into pieces, and sentences into windows. Logs what `statistics` tells.

    Windows of a long sentence overlap by half, so that every word has a quarter of a window of
    context on both sides, or all there is.

    Args:
        sentences: what to encode.
        tokenizer: cuts the words, one by one.
        max_sequence_length: in tokens, [CLS] and [SEP] included.

    Raises:
        ValueError: there are no sentences, or `max_sequence_length` has no room for one token
            beside [CLS] and [SEP].
    """
    if not len(sentences):
        raise ValueError(f"{sentences.source}: no sentences")
    room = max_sequence_length - 2
    if room < 1:
        raise ValueError(
            f"max_sequence_length={max_sequence_length}: [CLS] and [SEP] take 2 tokens; give more"
        )
    pieces = tokenizer.tokenize([word for words in sentences.words for word in words])
    # Words, then pieces of words, to pieces of sentences: (sentences, words, None) -> (.., None).
    by_word = tf.RaggedTensor.from_row_lengths(
        pieces, tf.constant([len(words) for words in sentences.words], tf.int64)
    )
    index = np.concatenate([np.arange(len(words)) for words in sentences.words])
    position = tf.range(tf.size(pieces.values, tf.int64))
    word = pieces.value_rowids()
    is_first = position == tf.gather(pieces.row_starts(), word)
    token_ids = by_word.merge_dims(1, 2)
    words = tf.cast(tf.where(is_first, tf.gather(index, word), -1), tf.int32)
    halves = windows.plan_halves(token_ids.row_lengths(), room)
    encoded = EncodedSentences(
        sentences,
        token_ids,
        token_ids.with_values(words),
        halves.windows,
        _owned(halves, token_ids.row_lengths()),
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

    The inputs are token_ids and segment_ids, int32, and padding_mask, bool; label ids int32 and
    weights float32 too are (batch, length). The weight is 1 at the first piece of each word, once
    for each word, else 0. A batch is as long as its longest window; shuffled batches hold windows
    of about the same length. Compile the model with `weighted_metrics`: `metrics` know no weights.

    Args:
        encoded: what to batch.
        labels: label -> id is its position here. None: no targets, only the inputs dict.
        batch_size: windows a batch; the last one may be smaller.
        shuffle: whether to shuffle, anew in each pass.
        seed: of the shuffling.

    Raises:
        ValueError: a batch size below 1, or a label that is not in `labels`.
    """
    label_ids = None if labels is None else _label_ids(encoded.sentences, labels)

    def batch(indices: tf.Tensor) -> Any:
        chosen = windows.Windows(*(tf.gather(part, indices) for part in encoded.windows))
        inputs = packing.pack(
            [windows.cut(encoded.token_ids, chosen)],
            cls_token_id=encoded.tokenizer.cls_token_id,
            sep_token_id=encoded.tokenizer.sep_token_id,
            pad_token_id=encoded.tokenizer.pad_token_id,
        )
        if label_ids is None:
            return inputs
        words = _word_at(encoded, indices)  # (batch, length), -1 where no label stands
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
        For each sentence as many labels as it has words; O for words without pieces.

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
    """From which piece to which a window's words count: int64 (windows, 2)."""
    (rows, starts, lengths), step, lead = halves
    begins = tf.where(starts == 0, tf.zeros_like(starts), lead)
    is_last = starts + lengths == tf.gather(num_tokens, rows)
    return tf.stack([begins, tf.where(is_last, lengths, lead + step)], axis=1)


def _word_at(encoded: EncodedSentences, indices: tf.Tensor) -> tf.Tensor:
    """The word whose label counts at each position of windows, else -1: int32 (batch, length)."""
    chosen = windows.Windows(*(tf.gather(part, indices) for part in encoded.windows))
    words = windows.cut(encoded.words, chosen).to_tensor(-1)  # (batch, pieces)
    owned = tf.gather(encoded.owned, indices)  # (batch, 2)
    position = tf.range(tf.shape(words, tf.int64)[1])
    is_owned = (position >= owned[:, :1]) & (position < owned[:, 1:])
    return tf.pad(tf.where(is_owned, words, -1), [[0, 0], [1, 1]], constant_values=-1)


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
