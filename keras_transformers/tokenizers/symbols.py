"""Converts text to symbols from a list, such as the letters of a word or its phonemes."""

import collections
import os
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import read_lines, write_lines
from keras_transformers.tokenizers.targets import Targets
from keras_transformers.tokenizers.tensors import row_by_row

__all__ = ["SymbolTokenizer"]

_SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")

SYMBOLS_FILE = "symbols.txt"


class SymbolTokenizer(Targets, tf.Module):
    """Converts text to the ids of its symbols and back with core TensorFlow ops, in the graph.

    It is for models of words and phonemes, and has the special token ids and the methods of
    `SentencePieceTokenizer`. Tokenizers with the same symbols share their ids, even if one splits
    at spaces and the other into characters.

    White space at either end of a text is dropped. Unknown symbols and invalid UTF-8 become the
    unknown token. An empty text has no tokens.

    Args:
        symbols: symbols in the order of their ids, which follow those of the special tokens.
        cut_at_spaces: whether white space separates symbols, and `detokenize` puts a space between
            them; by default each character is a symbol.
        lowercase: lower-case texts first.
        name: name of the module.

    Attributes:
        vocabulary: the special tokens and the symbols, by id.
        vocabulary_size: the number of tokens.
        pad_token_id: 0.
        unknown_token_id: 1.
        start_token_id: 2.
        end_token_id: 3.

    Raises:
        ValueError: there are no symbols; or one is empty, contains white space, is repeated, or is
            a special token.

    Example:
        >>> tokenizer = SymbolTokenizer(["HH", "AY"], cut_at_spaces=True)
        >>> tokenizer.tokenize(["HH AY"], add_end=True).to_list()
        [[4, 5, 3]]
        >>> tokenizer.detokenize([[4, 5, 3, 0]]).numpy()
        array([b'HH AY'], dtype=object)
    """

    pad_token_id = 0
    unknown_token_id = 1
    start_token_id = 2
    end_token_id = 3

    def __init__(
        self,
        symbols: Sequence[str],
        *,
        cut_at_spaces: bool = False,
        lowercase: bool = False,
        name: str = "symbol_tokenizer",
    ) -> None:
        super().__init__(name=name)
        if not symbols:
            raise ValueError("no symbols: pass at least one")
        self.vocabulary = [*_SPECIAL_TOKENS, *symbols]
        for symbol, count in collections.Counter(self.vocabulary).items():
            if count > 1 or symbol.split() != [symbol]:
                raise ValueError(
                    f"symbol {symbol!r}, {count} times: list each symbol once, without white "
                    f"space, and none of {', '.join(_SPECIAL_TOKENS)}"
                )
        self.vocabulary_size = len(self.vocabulary)
        self.cut_at_spaces = cut_at_spaces
        self.lowercase = lowercase
        with tf.device("CPU:0"):  # where strings live
            ids = tf.range(len(_SPECIAL_TOKENS), self.vocabulary_size)
            names = tf.constant(list(symbols), tf.string)
            self._ids = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(names, ids),
                default_value=self.unknown_token_id,
            )
            self._names = tf.constant(self.vocabulary)

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        if self.cut_at_spaces:
            symbols = tf.strings.split(text)
        else:
            symbols = tf.strings.unicode_split(tf.strings.strip(text), "UTF-8")
        names = symbols.values
        if self.lowercase:  # after splitting, which turned invalid UTF-8 into U+FFFD
            names = tf.strings.lower(names, encoding="utf-8")
        return symbols.with_values(self._ids.lookup(names))

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts.

        Padding, start and end tokens are left out; the unknown token becomes "<unk>".

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).

        Raises:
            tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.pad_token_id)
        return row_by_row(self._join, tf.cast(token_ids, tf.int32))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the symbols to `symbols.txt` in a folder, for `load`."""
        write_lines(os.path.join(folder, SYMBOLS_FILE), self.vocabulary[len(_SPECIAL_TOKENS) :])

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        file = os.path.join(folder, SYMBOLS_FILE)
        symbols = list(read_lines(file))
        try:
            return cls(symbols, **config)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {"cut_at_spaces": self.cut_at_spaces, "lowercase": self.lowercase}

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape."""
        return tf.gather(self._names, token_ids)

    def _join(self, token_ids: tf.Tensor) -> tf.Tensor:
        is_shown = (token_ids == self.unknown_token_id) | (token_ids > self.end_token_id)
        shown = tf.ragged.boolean_mask(self.tokens(token_ids), is_shown)
        return tf.strings.reduce_join(shown, axis=1, separator=" " if self.cut_at_spaces else "")
