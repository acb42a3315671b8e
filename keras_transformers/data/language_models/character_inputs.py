"""Texts and labelled words as character ids, for the heads on ELMo's features.

classification.dataset(examples, CharacterInputs(), labels, ...)
conll.load -> word_batches -> model -> labels_of_words
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data import batching
from keras_transformers.data.text.conll import Sentences
from keras_transformers.tokenizers.characters import CharacterTokenizer


class CharacterInputs:
    """Texts of words between white space, as `data.classification` asks a tokenizer for them.

    Args:
        max_characters: as of the model; see `CharacterTokenizer`.

    Example:
        >>> inputs = CharacterInputs(max_characters=6)(["a film"], max_sequence_length=3)
        >>> inputs["character_ids"].shape  # one word is left between its markers
        TensorShape([1, 3, 6])
    """

    def __init__(self, *, max_characters: int = 50) -> None:
        self._tokenizer = CharacterTokenizer(max_characters=max_characters)

    def __call__(
        self, text: Any, text_b: Any = None, *, max_sequence_length: int
    ) -> dict[str, Any]:
        """Packs texts.

        Args:
            text: strings (batch,).
            text_b: there must be none: ELMo reads one text.
            max_sequence_length: words, and two markers; longer texts lose their end.

        Returns:
            `character_ids` int32 (batch, length, max_characters).

        Raises:
            ValueError: a second text, or a length without room for a word.
        """
        if max_sequence_length < 3:
            raise ValueError(
                f"max_sequence_length={max_sequence_length}: two markers and a word take 3"
            )
        words = self._words(text, text_b)[:, : max_sequence_length - 2]
        return {"character_ids": self._tokenizer.encode(words)}

    def lengths(self, text: Any, text_b: Any = None) -> tf.Tensor:
        """Words and markers before anything is trimmed: int32 (batch,)."""
        return tf.cast(self._words(text, text_b).row_lengths(), tf.int32) + 2

    def _words(self, text: Any, text_b: Any) -> tf.RaggedTensor:
        if text_b is not None:
            raise ValueError("ELMo reads one text at a time: pairs need another encoder")
        return self._tokenizer.words(tf.convert_to_tensor(text, tf.string))


def word_batches(
    sentences: Sentences,
    labels: Sequence[str] | None,
    *,
    batch_size: int,
    max_characters: int = 50,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches of (inputs, {"logits": label ids}, {"logits": weights}), one pass over sentences.

    What `data.tagging.dataset` is for word pieces: the input is `character_ids` int32 (batch,
    words + 2, max_characters), with markers; label ids int32 and weights float32, 1 at each word,
    are (batch, words), as `models.elmo.features` leaves the markers out. No sentence is cut.

    Args:
        sentences: with labels, if there are to be targets.
        labels: label -> id is its position here. None: no targets, only the inputs dict.
        batch_size: sentences a batch; the last one may be smaller.
        max_characters: as of the model; see `CharacterTokenizer`.
        shuffle: whether to shuffle, anew in each pass; sentences of about the same length share a
            batch.
        seed: of the shuffling.

    Raises:
        ValueError: no sentences, a batch size below 1, or a label that is not in `labels`.
    """
    if not len(sentences):
        raise ValueError(f"{sentences.source}: no sentences")
    tokenizer = CharacterTokenizer(max_characters=max_characters)
    lengths = np.array([len(words) for words in sentences.words], np.int64)
    words = _ragged([word.encode() for row in sentences.words for word in row], lengths, tf.string)
    label_ids = None
    if labels is not None:
        label_ids = _ragged(_label_ids(sentences, labels), lengths, tf.int32)

    def batch(indices: tf.Tensor) -> Any:
        inputs = {"character_ids": tokenizer.encode(tf.gather(words, indices))}
        if label_ids is None:
            return inputs
        targets = tf.gather(label_ids, indices)
        weights = tf.sequence_mask(targets.row_lengths(), dtype=tf.float32)
        return inputs, {"logits": targets.to_tensor()}, {"logits": weights}

    batches = batching.index_batches(lengths, batch_size=batch_size, shuffle=shuffle, seed=seed)
    return batches.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(
        tf.data.AUTOTUNE
    )


def labels_of_words(
    sentences: Sentences, outputs: Iterable[Mapping[str, Any]], labels: Sequence[str]
) -> list[list[str]]:
    """The most likely label of each word.

    Args:
        sentences: what the model was asked about.
        outputs: of the model, for each batch of `word_batches(sentences, None, ...)`, unshuffled:
            `logits` (batch, words, labels). Padding may be of any length.
        labels: in the order of their ids.

    Raises:
        ValueError: there are other sentences than logits, or words than places.
    """
    best = [row.argmax(axis=-1) for output in outputs for row in np.asarray(output["logits"])]
    lengths = [len(words) for words in sentences.words]
    if len(best) != len(lengths) or any(len(r) < n for r, n in zip(best, lengths, strict=False)):
        raise ValueError(
            f"logits of {len(best)} sentences for {len(lengths)}, or of too few words: expected "
            "those of all sentences in order"
        )
    pairs = zip(best, lengths, strict=True)
    return [[labels[i] for i in row[:length]] for row, length in pairs]


def _ragged(values: Any, lengths: np.ndarray, dtype: Any) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths(tf.constant(values, dtype), lengths)


def _label_ids(sentences: Sentences, labels: Sequence[str]) -> list[int]:
    """Of all words."""
    if sentences.labels is None:
        raise ValueError(f"{sentences.source}: sentences without labels cannot be targets")
    ids = {label: i for i, label in enumerate(labels)}
    unknown = sorted({label for row in sentences.labels for label in row} - set(ids))
    if unknown:
        raise ValueError(f"{sentences.source}: unknown labels {unknown}, expected {list(labels)}")
    return [ids[label] for row in sentences.labels for label in row]
