"""Byte-level byte-pair encoding, the same in Python, in tf.data and in a SavedModel.

It uses only core TensorFlow ops on constants, with no lookup table and no state to initialize.
keras-nlp's `BytePairTokenizer` (0.32) splits words differently in Python and in a graph; its graph
also caches every word it sees and drops a character from texts.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import tensorflow as tf

from keras_transformers.files import check_new, replaced
from keras_transformers.tokenizers import offsets
from keras_transformers.tokenizers.byte_pairs import files as byte_pair_files
from keras_transformers.tokenizers.byte_pairs.gpt2_words import (
    Characters,
    Kinds,
    character_kinds,
    characters_of,
    starts_word,
)
from keras_transformers.tokenizers.byte_pairs.merging import Merges
from keras_transformers.tokenizers.described.parts import Parts
from keras_transformers.tokenizers.learned_size import log_size
from keras_transformers.tokenizers.packing import Packing
from keras_transformers.tokenizers.tensors import Texts, item_numbers, kept, texts_of

__all__ = ["BytePairTokenizer"]


class BytePairTokenizer(Packing, tf.Module):
    r"""Byte-level byte-pair encoding (Radford et al. 2019, "Language Models are Unsupervised ...").

    A text is split into words, each with the space before it. The bytes of each word are then
    merged, earlier merges of the vocabulary first. Any string of bytes can be tokenized and
    restored unchanged: `detokenize(tokenize(text)) == text`. All methods except `train` run in the
    graph. Ids equal those of Hugging Face's `ByteLevelBPETokenizer`, except that:

      - Invalid UTF-8, which no Python string contains, also has tokens. When words are split, such
        bytes count as symbols, like "#".
      - Python's `unicodedata` decides what is a letter or a number, so a library built on another
        version of Unicode may split new characters differently.
      - A special token's name in a text, such as "<|endoftext|>", is ordinary text; only code can
        insert special ids.

    The special tokens are GPT-2's: "<|endoftext|>" starts and ends a document and pads rows. For
    other models, a subclass sets `special_names` and, if needed, `unused_tokens`.

    Args:
        path: a folder with `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`.
        parts: the `normalizer`, `pre_tokenizer` and `added_tokens` of a tokenizer.json, to use
            instead of GPT-2's (see `described.Parts`). The added tokens' names in a text are these
            tokens.
        name: name of the module.

    Attributes:
        special_names: purpose -> special token. All must be in the vocabulary; the id for "start"
            becomes `start_token_id`, and so on.
        unused_tokens: tokens that the vocabulary may contain even though no text produces them.
        vocabulary: tokens by id, as written in the files: "Ġ" is a space.
        vocabulary_size: the number of tokens.
        start_token_id: id of the token for "start".
        end_token_id: id of the token for "end".
        pad_token_id: id of the token for "pad".

    Raises:
        FileNotFoundError: the folder or one of the two files does not exist.
        ValueError: the files are not a valid vocabulary; the message names the file and, for
            merges, the line.
    """

    special_names: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("start", "end", "pad"), "<|endoftext|>"
    )
    unused_tokens: ClassVar[Sequence[str]] = ()
    start_token_id: int
    end_token_id: int
    pad_token_id: int

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        parts: Mapping[str, Any] | None = None,
        name: str = "byte_pair_tokenizer",
    ) -> None:
        super().__init__(name=name)
        special = list(dict.fromkeys(self.special_names.values()))
        names = [token["content"] for token in (parts or {}).get("added_tokens") or []]
        vocabulary = byte_pair_files.read(path, special, [*self.unused_tokens, *names])
        size = len(vocabulary.tokens)
        self.parts = None if parts is None else Parts(parts, num_tokens=size, byte_level=True)
        added = [] if self.parts is None else self.parts.added
        self.vocabulary_size = size + len(added)
        self._contents = byte_pair_files.contents(vocabulary)  # bytes: tf.Module searches lists
        symbols = byte_pair_files.byte_symbols()
        ids = {token: i for i, token in enumerate(vocabulary.tokens)}
        for purpose, token in self.special_names.items():
            setattr(self, f"{purpose}_token_id", ids[token])
        derived = {*symbols, *(left + right for left, right in vocabulary.merges)}
        written = set(names) - derived  # unchanged, not as bytes
        token_bytes = _token_bytes([*vocabulary.tokens, *added], symbols, special, written)
        with tf.device("CPU:0"):
            self._merges = Merges(
                [(ids[left], ids[right], ids[left + right]) for left, right in vocabulary.merges],
                vocabulary_size=self.vocabulary_size,
            )
            self._byte_ids = tf.constant([ids[symbol] for symbol in symbols])
            self._byte_strings = tf.constant([bytes([byte]) for byte in range(256)])
            self._token_bytes = tf.constant(token_bytes)
            self._token_lengths = tf.constant(list(map(len, token_bytes)), tf.int64)
            self._token_names = tf.constant([*vocabulary.tokens, *added])
            self._kinds = Kinds(*map(tf.constant, character_kinds()))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        path: str | os.PathLike[str],
        *,
        vocabulary_size: int = 8000,
        min_frequency: int = 2,
    ) -> Self:
        """Learns a vocabulary from text and writes its folder, atomically.

        Args:
            texts: documents, including line ends.
            path: the folder to create.
            vocabulary_size: number of tokens, including the 256 bytes and special tokens; fewer,
                with a warning, if no more pairs occur `min_frequency` times.
            min_frequency: how often a pair must occur to be merged.

        Returns:
            The tokenizer of the new folder.

        Raises:
            FileExistsError: `path` exists.
            FileNotFoundError: the parent folder of `path` does not exist.
            ValueError: `vocabulary_size` leaves no room for merges, or there is no text.
        """
        check_new(path)
        learned = byte_pair_files.learn(
            texts,
            list(dict.fromkeys(cls.special_names.values())),
            vocabulary_size=vocabulary_size,
            min_frequency=min_frequency,
        )
        byte_pair_files.write(learned, path)
        log_size(path, len(learned.tokens), vocabulary_size)
        return cls(path)

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts texts to token ids, without special tokens.

        Args:
            text: strings (batch,), any bytes.

        Returns:
            int32 (batch, None).
        """
        text = texts_of(text)
        if self.parts is not None:
            return self.parts.tokenize(text, self._encode_words)[0]
        with tf.device("CPU:0"):
            return self._tokenize(text, characters_of(text, self._kinds))

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids, and finds the span of each token in its text.

        The ids are those of `tokenize`. As with Hugging Face's `trim_offsets`, a token's span is
        the bytes of its characters without the white space before them. It covers whole characters,
        even where a character is split into several tokens. A token of only white space has an
        empty span, at the end of the last character before it that is not white space.

        Args:
            text: strings (batch,), any bytes; those that are not UTF-8 count as characters.

        Returns:
            Token ids, starts and ends (exclusive), each int32 (batch, None).
        """
        text = texts_of(text)
        with tf.device("CPU:0"):
            characters = characters_of(text, self._kinds)
            if self.parts is not None:
                ids, starts, ends = self.parts.tokenize(text, self._encode_words)
                starts, ends = offsets.without_white_space(
                    text,
                    starts.values,
                    ends.values,
                    ids.value_rowids(),
                    character_starts=characters.starts,
                    is_white_space=characters.is_white_space,
                )
                return ids, ids.with_values(starts), ids.with_values(ends)
            ids = self._tokenize(text, characters)
            # End to end, the tokens of all texts are the bytes of all texts.
            ends = tf.cumsum(tf.gather(self._token_lengths, ids.values))
            starts, ends = offsets.without_white_space(
                text,
                ends - tf.gather(self._token_lengths, ids.values),
                ends,
                ids.value_rowids(),
                character_starts=characters.starts,
                is_white_space=characters.is_white_space,
            )
            return ids, ids.with_values(starts), ids.with_values(ends)

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts, without special tokens.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...). Part of a text's tokens may not be valid UTF-8.

        Raises:
            tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        with tf.device("CPU:0"):
            if isinstance(token_ids, tf.RaggedTensor):
                token_ids = token_ids.to_tensor(self.pad_token_id)
            return tf.strings.reduce_join(tf.gather(self._token_bytes, token_ids), axis=-1)

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` puts around segments: start a end b end."""
        return [[self.start_token_id], *[[self.end_token_id]] * num_segments]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `vocab.json` and `merges.txt` to a folder, for `load`."""
        for name, content in zip(byte_pair_files.NAMES, self._contents, strict=True):
            with replaced(os.path.join(folder, name)) as scratch:
                scratch.write_bytes(content)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from what `save` wrote and `config` returned."""
        return cls(folder, **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {} if self.parts is None else {"parts": self.parts.description}

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape."""
        with tf.device("CPU:0"):
            return tf.gather(self._token_names, token_ids)

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self._token_names.numpy()]

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The pairs that become one token, earlier ones first, as written in the files."""
        lines = self._contents[1].decode().splitlines()
        pairs = [line.split(" ") for line in lines if not line.startswith("#version")]
        return [(left, right) for left, right in pairs]

    def _tokenize(self, text: tf.Tensor, characters: Characters) -> tf.RaggedTensor:
        words, rows = self._words(text, characters)
        words, numbers = tf.unique(words)
        tokens = tf.gather(self._encode(words), numbers)  # (words, None)
        num_tokens = tf.math.unsorted_segment_sum(
            tokens.row_lengths(), rows, tf.size(text, tf.int64)
        )
        return tf.RaggedTensor.from_row_lengths(tokens.values, num_tokens, validate=False)

    def _words(self, text: tf.Tensor, characters: Characters) -> tuple[tf.Tensor, tf.Tensor]:
        """Splits texts into words, strings (words,); also returns their rows, int64 (words,)."""
        is_start = starts_word(characters)
        starts = kept(characters.starts, is_start)
        # Back to bytes: all texts end to end, each byte with the number of its word.
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
        marks = tf.scatter_nd(
            starts[:, None], tf.ones_like(starts), tf.size(all_bytes, tf.int64)[None]
        )
        words = tf.strings.unsorted_segment_join(
            tf.gather(self._byte_strings, tf.cast(all_bytes, tf.int32)),
            tf.cumsum(marks) - 1,
            tf.size(starts),
        )
        return words, kept(characters.rows, is_start)

    def _encode(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Converts distinct words, strings (words,), to token ids, int32 (words, None)."""
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(all_bytes, tf.int32))  # (bytes,)
        ids, words_of, _ = self._merges(ids, item_numbers(tf.strings.length(words)))
        return tf.RaggedTensor.from_value_rowids(
            ids, tf.cast(words_of, tf.int64), tf.size(words, tf.int64), validate=False
        )

    def _encode_words(
        self, words: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts words to ids, starts and ends, in bytes of the word."""
        ids = self._encode(words)
        lengths = tf.gather(self._token_lengths, ids.values)
        ends = tf.cumsum(lengths)
        word_starts = tf.cumsum(tf.cast(tf.strings.length(words), tf.int64), exclusive=True)
        ends -= tf.gather(word_starts, ids.value_rowids())
        return ids, ids.with_values(ends - lengths), ids.with_values(ends)


def _token_bytes(
    tokens: Sequence[str],
    symbols: Sequence[str],
    special_tokens: Collection[str],
    written: Collection[str],
) -> list[bytes]:
    """Returns the bytes of each token: none for special ones, the name's for `written` ones."""
    byte_of = {symbol: byte for byte, symbol in enumerate(symbols)}

    def bytes_of(token: str) -> bytes:
        if token in special_tokens:
            return b""
        return token.encode() if token in written else bytes(byte_of[symbol] for symbol in token)

    return list(map(bytes_of, tokens))
