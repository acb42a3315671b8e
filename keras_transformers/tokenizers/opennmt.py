"""Converts words to ids with a vocabulary of OpenNMT-tf."""

import os
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import read_lines, write_lines
from keras_transformers.tokenizers.symbols import SymbolTokenizer

__all__ = ["OpenNMTTokenizer"]

VOCABULARY_FILE = "vocabulary.txt"
_FIRST = ("<blank>", "<s>", "</s>")
_UNKNOWN = "<unk>"


class OpenNMTTokenizer(SymbolTokenizer):
    """Converts texts, cut into words at white space, to the ids of OpenNMT-tf and back.

    OpenNMT-tf expects texts that are already tokenized. Its vocabulary starts with <blank>, <s> and
    </s>, and unknown words get the id after the last one. Sources have no special tokens.

    Args:
        vocabulary: the lines of a vocabulary file, in order.
        name: name of the module.

    Attributes:
        vocabulary: the words by id, with <unk> last.
        vocabulary_size: the number of words, with <unk>.
        pad_token_id: 0.
        start_token_id: 1.
        end_token_id: 2.
        unknown_token_id: the last id.

    Raises:
        ValueError: the vocabulary does not start as expected, or repeats a word.

    Example:
        >>> tokenizer = OpenNMTTokenizer(["<blank>", "<s>", "</s>", "a", "dog"])
        >>> tokenizer.tokenize(["a cat"]).to_list()
        [[3, 5]]
    """

    start_token_id = 1
    end_token_id = 2

    def __init__(self, vocabulary: Sequence[str], *, name: str = "opennmt_tokenizer") -> None:
        tf.Module.__init__(self, name=name)
        words = list(vocabulary)
        if tuple(words[: len(_FIRST)]) != _FIRST:
            raise ValueError(
                f"the vocabulary starts with {words[: len(_FIRST)]}, not with "
                f"{', '.join(_FIRST)}: use an OpenNMT-tf vocabulary"
            )
        if len(set(words)) < len(words):
            repeated = next(word for word in words if words.count(word) > 1)
            raise ValueError(f"the vocabulary has {repeated!r} twice: download it again")
        self.vocabulary = [*words, _UNKNOWN]
        self.vocabulary_size = len(self.vocabulary)
        self.unknown_token_id = len(words)
        self.cut_at_spaces, self.lowercase = True, False
        with tf.device("CPU:0"):  # where strings live
            self._ids = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant(words), tf.range(len(words))),
                default_value=self.unknown_token_id,
            )
            self._names = tf.constant(self.vocabulary)

    def special_tokens(self, num_texts: int) -> tuple[list[int], ...]:
        """Returns the ids before, between and after texts: none."""
        return tuple([] for _ in range(num_texts + 1))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the words to `vocabulary.txt` in a folder, for `load`."""
        write_lines(os.path.join(folder, VOCABULARY_FILE), self.vocabulary[:-1])

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the file of `save`, or from one of OpenNMT-tf's files."""
        file = os.path.join(folder, VOCABULARY_FILE) if os.path.isdir(folder) else os.fspath(folder)
        try:
            return cls(list(read_lines(file)), **config)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files: none."""
        return {}
