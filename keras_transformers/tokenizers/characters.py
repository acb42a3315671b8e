"""Converts words to the ids of their bytes, for ELMo's character convolutions, in the graph."""

import os
from typing import Any, Self

import tensorflow as tf

from keras_transformers.tokenizers.tensors import Texts

__all__ = ["CharacterTokenizer"]

# bilm-tf's ids plus 1, because 0 is padding.
_START_TEXT, _END_TEXT, _START_WORD, _END_WORD, _FILL = (byte + 1 for byte in range(256, 261))


class CharacterTokenizer(tf.Module):
    r"""The character ids of bilm-tf and AllenNLP: UTF-8 bytes between marks.

    A word has `max_characters` ids: [start of word], its bytes, [end of word], then filler. A text
    is [start of text], its words, [end of text]; these two markers are words of one character.
    Bytes are 1 to 256; 257 and 258 start and end a text, 259 and 260 a word, 261 is filler, 0 is
    padding. Uses only core TensorFlow ops.

    Unusual text:
      - A word of more than `max_characters - 2` bytes is cut there, even within a character;
        `num_cut` counts such words.
      - An empty word consists of its two marks; bilm-tf fails on it.
      - Bytes need not be UTF-8. "<S>" and "</S>" in a text are ordinary words; bilm-tf treats them
        as the markers.
      - A text without words consists of its two markers.

    Args:
        max_characters: ids per word, including the marks; at least 3.
        name: name of the module.

    Attributes:
        num_characters: the number of ids, 262.

    Raises:
        ValueError: `max_characters` leaves no room for a byte.

    Example:
        >>> tokenizer = CharacterTokenizer(max_characters=6)
        >>> tokenizer(tf.constant(["I am"]))["character_ids"].numpy()
        array([[[259, 257, 260, 261, 261, 261],
                [259,  74, 260, 261, 261, 261],
                [259,  98, 110, 260, 261, 261],
                [259, 258, 260, 261, 261, 261]]], dtype=int32)
    """

    num_characters = 262

    def __init__(self, *, max_characters: int = 50, name: str | None = None) -> None:
        super().__init__(name=name)
        if max_characters < 3:
            raise ValueError(
                f"max_characters={max_characters}: a word needs at least 3 ids, 2 of them marks"
            )
        self.max_characters = max_characters

    def __call__(self, text: Texts) -> dict[str, tf.Tensor]:
        """Converts texts to ids; words are separated by white space.

        Args:
            text: strings (batch,).

        Returns:
            `character_ids` int32 (batch, words of the longest text + 2, max_characters).
        """
        return {"character_ids": self.encode(self.words(text))}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Does nothing: the 256 bytes need no vocabulary."""

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from what `config` returned."""
        return cls(**config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs, as JSON values."""
        return {"max_characters": self.max_characters}

    def words(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) at white space into strings (batch, None)."""
        return tf.strings.split(text)

    def encode(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Converts words (batch, None) to ids (batch, words + 2, max_characters)."""
        start, end = (self._marker(mark, words.nrows()) for mark in (_START_TEXT, _END_TEXT))
        ids = words.with_values(self.encode_words(words.values))
        return tf.concat([start, ids, end], axis=1).to_tensor(
            0, shape=[None, None, self.max_characters]
        )

    def encode_words(self, words: tf.Tensor) -> tf.Tensor:
        """Converts words, strings (words,), to int32 (words, max_characters), without markers."""
        room = self.max_characters - 2
        codes = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=room), tf.int32) + 1
        codes = tf.pad(codes, [[0, 0], [1, 1]])  # (words, max_characters)
        position = tf.range(self.max_characters)
        end = tf.minimum(tf.strings.length(words), room)[:, None] + 1  # position of the end mark
        codes = tf.where(position < end, codes, _FILL)
        codes = tf.where(position == end, _END_WORD, codes)
        return tf.where(position == 0, _START_WORD, codes)

    def num_cut(self, words: tf.Tensor) -> tf.Tensor:
        """Counts the words in a tensor or ragged tensor that are cut: int32 scalar."""
        values = words.values if isinstance(words, tf.RaggedTensor) else words
        is_cut = tf.strings.length(values) > self.max_characters - 2
        return tf.reduce_sum(tf.cast(is_cut, tf.int32))

    def _marker(self, mark: int, batch: tf.Tensor) -> tf.RaggedTensor:
        """Returns a word of one character for each row: (batch, 1, max_characters)."""
        fill = [_FILL] * (self.max_characters - 3)
        word = tf.constant([_START_WORD, mark, _END_WORD, *fill])
        rows = tf.tile(word[None], [tf.cast(batch, tf.int32), 1])
        return tf.RaggedTensor.from_uniform_row_length(rows, 1, nrows=batch)
