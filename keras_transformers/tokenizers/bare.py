"""Converts texts to the tokens of static vectors: no special tokens, and none that is unknown."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import tensorflow as tf

from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers import vocabulary as vocabularies
from keras_transformers.tokenizers.protocols import SpanTokenizer
from keras_transformers.tokenizers.tensors import Texts, kept, row_numbers, texts_of
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["BareTokenizer", "BareWordPieceTokenizer"]


class BareWordPieceTokenizer(WordPieceTokenizer):
    """A `WordPieceTokenizer` whose only special token is `[UNK]`, as in pruned vocabularies.

    `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]` need not be in the vocabulary, and `pack` adds none.

    Args:
        vocabulary: see `WordPieceTokenizer`, as for the other arguments.
        lowercase: whether to lower-case.
        parts: parts of a tokenizer.json.
        name: name of the module.

    Raises:
        ValueError: `[UNK]` is missing; or see `WordPieceTokenizer`.

    Example:
        >>> tokenizer = BareWordPieceTokenizer(["[UNK]", "good", "film", "##s"])
        >>> tokenizer(["Good films"], max_sequence_length=16)["token_ids"].numpy().tolist()
        [[1, 2, 3]]
    """

    special_names: ClassVar[Mapping[str, str]] = dict.fromkeys(
        WordPieceTokenizer.special_names, vocabularies.UNKNOWN
    )

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns no ids: `pack` adds none."""
        return [[] for _ in range(num_segments + 1)]


class BareTokenizer(packing.Packing, tf.Module):
    """Another tokenizer without its special tokens, as static vectors (Model2Vec) need.

    It cuts long texts itself, as Model2Vec does: to `max_characters`, then to `max_tokens`, and
    only then drops unknown tokens. All methods run in the graph.

    Args:
        tokenizer: the tokenizer, such as a `BareWordPieceTokenizer` or a `DescribedTokenizer`.
        drop_unknown: whether to drop unknown tokens. Model2Vec does, sentence-transformers'
            `StaticEmbedding` does not.
        max_tokens: how many tokens of a text are read, unknown ones included; all by default.
        max_characters: how many characters of a text are read; all by default. Model2Vec reads
            `max_tokens` times the median length of its tokens.
        name: name of the module.

    Attributes:
        tokenizer: the other tokenizer.
        vocabulary_size: the number of tokens.
        pad_token_id: pads rows; use `padding_mask`.
        unknown_token_id: the id that is dropped; None for none.

    Raises:
        ValueError: `max_tokens` or `max_characters` is below 1.

    Example:
        >>> words = BareWordPieceTokenizer(["[UNK]", "good", "film", "##s"])
        >>> BareTokenizer(words).tokenize(["Good old films", "?"]).to_list()
        [[1, 2, 3], []]
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        drop_unknown: bool = True,
        max_tokens: int | None = None,
        max_characters: int | None = None,
        name: str = "bare_tokenizer",
    ) -> None:
        super().__init__(name=name)
        for argument, value in (("max_tokens", max_tokens), ("max_characters", max_characters)):
            if value is not None and value < 1:
                raise ValueError(f"{argument}={value}: expected at least 1, or None for all")
        self.tokenizer: SpanTokenizer = tokenizer
        self.drop_unknown = drop_unknown
        self.max_tokens, self.max_characters = max_tokens, max_characters
        self.vocabulary_size: int = tokenizer.vocabulary_size
        self.pad_token_id: int = tokenizer.pad_token_id
        unknown = getattr(tokenizer, "unknown_token_id", None)
        self.unknown_token_id: int | None = unknown if drop_unknown else None

    def __call__(
        self,
        text: Texts,
        text_b: Texts | None = None,
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Converts texts or pairs of texts to the inputs of an encoder; see `Packing.pack`.

        Args:
            text: strings (batch,).
            text_b: second texts, strings (batch,).
            max_sequence_length: maximum tokens in a row.
            pad_to_max_length: pad to that length instead of the longest row of the batch.

        Returns:
            token_ids and segment_ids int32, padding_mask bool, each (batch, length).
        """
        return self.pack(
            self._segments(text, text_b),
            max_sequence_length=max_sequence_length,
            pad_to_max_length=pad_to_max_length,
        )

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts texts, strings (batch,), to the ids of known tokens: int32 (batch, None)."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            ids = self._cut(self.tokenizer.tokenize(self._read(text)))
            return self._known(ids, ids)

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to the ids of `tokenize`, and finds the span of each in its text.

        Args:
            text: strings (batch,).

        Returns:
            Token ids, starts and ends (exclusive) in bytes, each int32 (batch, None).
        """
        with tf.device("CPU:0"):
            ids, starts, ends = map(
                self._cut, self.tokenizer.tokenize_with_offsets(self._read(text))
            )
            return self._known(ids, ids), self._known(ids, starts), self._known(ids, ends)

    def lengths(self, text: Texts, text_b: Texts | None = None) -> tf.Tensor:
        """Returns how many tokens `tokenize` finds in texts or pairs: int32 (batch,)."""
        counts = [segment.row_lengths() for segment in self._segments(text, text_b)]
        return tf.cast(sum(counts), tf.int32)

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns no ids: `pack` adds none."""
        return [[] for _ in range(num_segments + 1)]

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape."""
        return self.tokenizer.tokens(token_ids)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the other tokenizer's files to a folder, for `load`."""
        self.tokenizer.save(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from a folder and the result of `config`.

        Raises:
            FileNotFoundError: a file does not exist.
            LookupError: `config` names an unknown class.
            ValueError: a file is damaged.
        """
        from keras_transformers import tokenizers  # a room that this module is in

        config = dict(config)
        name, options = config.pop("tokenizer"), config.pop("options")
        if not hasattr(tokenizers, str(name)):
            raise LookupError(f"no tokenizer {name!r:.100}")
        return cls(getattr(tokenizers, name).load(folder, **options), **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {
            "tokenizer": type(self.tokenizer).__name__,
            "options": self.tokenizer.config(),
            "drop_unknown": self.drop_unknown,
            "max_tokens": self.max_tokens,
            "max_characters": self.max_characters,
        }

    @property
    def vocabulary(self) -> Sequence[str]:
        """All tokens, by id; cannot run in a graph."""
        return self.tokenizer.vocabulary

    def _read(self, text: Texts) -> tf.Tensor:
        """Returns the part of each text that is read, strings (batch,)."""
        text = texts_of(text)
        if self.max_characters is None:
            return text
        return tf.strings.substr(text, 0, self.max_characters, unit="UTF8_CHAR")

    def _cut(self, rows: tf.RaggedTensor) -> tf.RaggedTensor:
        return rows if self.max_tokens is None else packing.trim(rows, self.max_tokens)

    def _known(self, ids: tf.RaggedTensor, rows: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns rows (batch, None) without the items whose ids are unknown."""
        if self.unknown_token_id is None:
            return rows
        is_known = ids.values != self.unknown_token_id
        row = kept(row_numbers(ids), is_known)
        return tf.RaggedTensor.from_value_rowids(
            kept(rows.values, is_known), row, nrows=ids.nrows(), validate=False
        )
