"""Words to the ids of their bytes, as ELMo's character convolutions read them, inside the graph."""

import os
from typing import Any, Self

import tensorflow as tf

__all__ = ["CharacterTokenizer"]

# bilm-tf's ids, each with the 1 added that leaves 0 to tokens that are padding.
_BEGIN_TEXT, _END_TEXT, _BEGIN_WORD, _END_WORD, _FILL = (byte + 1 for byte in range(256, 261))


class CharacterTokenizer(tf.Module):
    r"""The character ids of bilm-tf and AllenNLP: UTF-8 bytes between marks.

    A word is [begin of word], its bytes, [end of word], then fill: `max_characters` ids. A text is
    [begin of text], its words, [end of text], those two being words of one character. Bytes are 1
    to 256; 257 and 258 begin and end a text, 259 and 260 a word, 261 fills up; 0 is padding. Core
    TensorFlow ops only.

    What becomes of odd text:
      - A word of more than `max_characters - 2` bytes is cut there, amid a character if need be;
        `num_cut` counts such words.
      - An empty word (`words` may hold one) is its two marks alone; bilm-tf fails on it.
      - Any bytes are read as they are, UTF-8 or not. "<S>" and "</S>" in a text are words like any
        other; bilm-tf takes them for the markers.
      - A text without words is its two markers.

    Args:
        max_characters: ids of a word, its marks included: at least 3.
        name: of the module.

    Attributes:
        num_characters: how many ids there are, 262.

    Raises:
        ValueError: a word could hold no byte.

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
                f"max_characters={max_characters}: a word needs 3 ids at least, two are its marks"
            )
        self.max_characters = max_characters

    def __call__(self, text: Any) -> dict[str, tf.Tensor]:
        """Texts of words between white space.

        Args:
            text: strings (batch,).

        Returns:
            `character_ids` int32 (batch, longest text's words + 2, max_characters).
        """
        return {"character_ids": self.encode(self.words(text))}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes nothing: the 256 bytes need no vocabulary."""

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """The tokenizer that `config` came from."""
        return cls(**config)

    def config(self) -> dict[str, Any]:
        """The arguments that make this tokenizer again, as JSON values."""
        return {"max_characters": self.max_characters}

    def words(self, text: Any) -> tf.RaggedTensor:
        """The words between white space: strings (batch,) to strings (batch, None)."""
        return tf.strings.split(text)

    def encode(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Words that are cut already, (batch, None), to ids (batch, words + 2, max_characters)."""
        begin, end = (self._marker(mark, words.nrows()) for mark in (_BEGIN_TEXT, _END_TEXT))
        ids = words.with_values(self.encode_words(words.values))
        return tf.concat([begin, ids, end], axis=1).to_tensor(
            0, shape=[None, None, self.max_characters]
        )

    def encode_words(self, words: Any) -> tf.Tensor:
        """Single words: strings (words,) to int32 (words, max_characters), without markers."""
        room = self.max_characters - 2
        codes = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=room), tf.int32) + 1
        codes = tf.pad(codes, [[0, 0], [1, 1]])  # (words, max_characters)
        places = tf.range(self.max_characters)
        end = tf.minimum(tf.strings.length(words), room)[:, None] + 1  # place of the end mark
        codes = tf.where(places < end, codes, _FILL)
        codes = tf.where(places == end, _END_WORD, codes)
        return tf.where(places == 0, _BEGIN_WORD, codes)

    def num_cut(self, words: Any) -> tf.Tensor:
        """How many of these words, a tensor or ragged tensor of strings, are cut: int32 scalar."""
        values = words.values if isinstance(words, tf.RaggedTensor) else words
        is_cut = tf.strings.length(values) > self.max_characters - 2
        return tf.reduce_sum(tf.cast(is_cut, tf.int32))

    def _marker(self, mark: int, batch: tf.Tensor) -> tf.RaggedTensor:
        """A word of one character, for each row: (batch, 1, max_characters)."""
        fill = [_FILL] * (self.max_characters - 3)
        word = tf.constant([_BEGIN_WORD, mark, _END_WORD, *fill])
        rows = tf.tile(word[None], [tf.cast(batch, tf.int32), 1])
        return tf.RaggedTensor.from_uniform_row_length(rows, 1, nrows=batch)
