"""Turns texts and labelled words into character ids, for heads on ELMo features."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.conll import Sentences
from keras_transformers.data.text.tagging import label_ids
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["CharacterInputs", "WordBatches"]


class CharacterInputs:
    """Prepares texts for `TextBatches`, like a pipeline, for models that read characters.

    Args:
        labels: names of the classes, in the order of the logits.
        max_sequence_length: words per text, plus two markers; longer texts are truncated.
        max_characters: must match the model; see `CharacterTokenizer`.

    Raises:
        ValueError: the length leaves no room for a word.

    Example:
        >>> inputs = CharacterInputs(["no", "yes"], max_sequence_length=3, max_characters=6)
        >>> inputs.pack(inputs.tokenize(["a film"]))["character_ids"].shape  # one word is left
        TensorShape([1, 3, 6])
    """

    def __init__(
        self, labels: Sequence[str], *, max_sequence_length: int, max_characters: int = 50
    ) -> None:
        if max_sequence_length < 3:
            raise ValueError(
                f"max_sequence_length={max_sequence_length}: must be 3 or more (two are markers)"
            )
        self.labels = list(labels)
        self.max_sequence_length = max_sequence_length
        self._tokenizer = CharacterTokenizer(max_characters=max_characters)

    def tokenize(self, *texts: Any) -> list[tf.RaggedTensor]:
        """Splits texts, strings (batch,), into words, strings (batch, None).

        Raises:
            ValueError: there is a second text.
        """
        if len(texts) > 1:
            raise ValueError("ELMo reads one text at a time: use another encoder for pairs")
        return [self._tokenizer.words(texts_of(text)) for text in texts]

    def pack(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, Any]:
        """Converts words to `character_ids`, int32 (batch, words + 2, max_characters)."""
        (words,) = segments
        return {"character_ids": self._tokenizer.encode(words[:, : self.max_sequence_length - 2])}

    def lengths(self, segments: Sequence[tf.RaggedTensor]) -> tf.Tensor:
        """Returns the number of words and markers before truncation: int32 (batch,)."""
        (words,) = segments
        return tf.cast(words.row_lengths(), tf.int32) + 2


class WordBatches(LengthBatches):
    """Batches of (inputs, {"logits": label ids}, {"logits": weights}) for ELMo.

    Like `TaggedBatches`, for words instead of tokens. The input is `character_ids` int32 (batch,
    words + 2, max_characters), markers included. Label ids, int32, and weights, float32, 1 at each
    word, are (batch, words): `models.elmo.features` drops the markers. No sentence is truncated.

    Args:
        sentences: sentences to batch; without labels the batches contain only inputs.
        labels: label names in the order of their ids.
        batch_size: sentences per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        max_characters: must match the model; see `CharacterTokenizer`.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`.

    Raises:
        ValueError: there are no sentences, the batch size is below 1, or a label is not in
            `labels`.
    """

    def __init__(
        self,
        sentences: Sentences,
        labels: Sequence[str],
        *,
        batch_size: int,
        accumulate: int = 1,
        max_characters: int = 50,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
    ) -> None:
        if not len(sentences):
            raise ValueError(f"{sentences.source}: no sentences")
        self.sentences = sentences
        self.labels = list(labels)
        self._row_size = batch_size
        self._tokenizer = CharacterTokenizer(max_characters=max_characters)
        self._words = tf.RaggedTensor.from_row_lengths(
            texts_of(
                [word for row in sentences.words for word in row], f"{sentences.source}: words"
            ),
            tf.constant([len(row) for row in sentences.words], tf.int64),
        )
        self._label_ids = None if sentences.labels is None else label_ids(sentences, labels)
        super().__init__(
            self._words.row_lengths().numpy(),
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
            static_shapes=static_shapes,
        )

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the sentences at `indices`, int32 (batch,); runs in graphs."""
        inputs = {"character_ids": self._tokenizer.encode(tf.gather(self._words, indices))}
        if self._label_ids is None:
            return inputs
        targets = tf.gather(self._label_ids, indices)
        weights = tf.sequence_mask(targets.row_lengths(), dtype=tf.float32)
        return inputs, {"logits": targets.to_tensor()}, {"logits": weights}

    def of(self, sentences: Sentences) -> Self:
        """Returns batches of other sentences, made the same way but in order."""
        return type(self)(
            sentences,
            self.labels,
            batch_size=self._row_size,
            max_characters=self._tokenizer.max_characters,
            shuffle=False,
            static_shapes=self.static_shapes,
        )

    def word_labels(self, outputs: Iterable[Mapping[str, Any]]) -> list[list[str]]:
        """Returns the most likely label of each word; the batches must be in order.

        Args:
            outputs: model outputs for each batch: `logits` (batch, words, labels), padded to any
                length.

        Raises:
            ValueError: the logits do not match the sentences in number, or are too short.
        """
        best = [row.argmax(axis=-1) for output in outputs for row in np.asarray(output["logits"])]
        lengths = [len(words) for words in self.sentences.words]
        pairs = list(zip(best, lengths, strict=False))
        if len(best) != len(lengths) or any(len(row) < length for row, length in pairs):
            raise ValueError(
                f"logits of {len(best)} sentences for {len(lengths)}, or for too few words: "
                "expected the logits of all sentences in order"
            )
        return [[self.labels[i] for i in row[:length]] for row, length in pairs]
