"""Defines the base class of tokenizers of encoders that have a SentencePiece model."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import tensorflow as tf

from keras_transformers.files import replaced
from keras_transformers.tokenizers import offsets
from keras_transformers.tokenizers.byte_pairs.gpt2_words import (
    Kinds,
    character_kinds,
    characters_of,
)
from keras_transformers.tokenizers.sentence_pieces.added import AddedPieces, join_around
from keras_transformers.tokenizers.sentencepiece import open_model
from keras_transformers.tokenizers.tensors import Texts, row_by_row, row_numbers, texts_of
from keras_transformers.tokenizers.text_ops.forms import Forms, SentencePieces

__all__: list[str] = []


class EncoderPieces(tf.Module):
    """A SentencePiece model with the ids of an encoder.

    A base class of tokenizers, which define how the model's ids become the encoder's.

    Args:
        path: a SentencePiece model, or a folder with `model_file`.
        name: name of the module.

    Attributes:
        model_file: the model's name in a folder.
        first_pieces: the model's own first pieces.
        vocabulary_size: the number of tokens.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, or its first pieces differ.
    """

    model_file: ClassVar[str]
    first_pieces: ClassVar[Sequence[str]]
    mask_token: str
    mask_token_id: int
    pad_token_id: int
    unknown_token_id: int
    vocabulary_size: int

    def __init__(self, path: str | os.PathLike[str], *, name: str) -> None:
        super().__init__(name=name)
        path = Path(path)
        path = path / self.model_file if path.is_dir() else path
        self._model, self._tokenizer = open_model(path)
        self._num_pieces = self._tokenizer().size
        first = tf.range(min(len(self.first_pieces), self._num_pieces))
        pieces = [
            piece.decode() for piece in self._tokenizer().id_to_string(first).numpy().tolist()
        ]
        if pieces != list(self.first_pieces):
            raise ValueError(
                f"{path}: the first pieces are {pieces}, but {type(self).__name__} needs "
                f"{list(self.first_pieces)}: use the tokenizer of this model's family"
            )
        with tf.device("CPU:0"):  # where strings live
            self._kinds = Kinds(*map(tf.constant, character_kinds()))

    def _add(
        self,
        tokens: Sequence[Mapping[str, Any]],
        model: bytes,
        tokenizer: Forms[SentencePieces],
        *,
        num_tokens: int,
    ) -> None:
        """Sets the model that reads texts, and the tokens added to the vocabulary's own."""
        self._tokenizer = tokenizer
        self._added = (
            AddedPieces(tokens, model, tokenizer, num_tokens=num_tokens) if tokens else None
        )
        self._names = () if self._added is None else self._added.names
        self.vocabulary_size = num_tokens + len(self._names)

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts texts, strings (batch,), to token ids, int32 (batch, None)."""
        if self._added is not None:
            return self._added.tokenize(texts_of(text), self._token_ids)[0]
        pieces = self._tokenizer().tokenize(texts_of(text))
        return pieces.with_values(self._token_ids(pieces.values))

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids, and finds the span of each token in its text.

        The ids are those of `tokenize`. A token's span is the bytes of its characters without the
        white space around them; a token of only white space has an empty span.

        Args:
            text: strings (batch,).

        Returns:
            Token ids, starts and ends (exclusive), each int32 (batch, None).
        """
        text = texts_of(text)
        with tf.device("CPU:0"):
            ids, first, last = self._spans(text)
            characters = characters_of(text, self._kinds)
            first, last = offsets.without_white_space(
                text,
                first,
                last,
                ids.value_rowids(),
                character_starts=characters.starts,
                is_white_space=characters.is_white_space,
            )
            return ids, ids.with_values(first), ids.with_values(last)

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts.

        Special tokens are left out; the unknown token becomes " ⁇ ". Added tokens keep
        their names, between single spaces.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).

        Raises:
            tf.errors.OutOfRangeError: an id is outside the vocabulary.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.pad_token_id)
        return row_by_row(
            lambda rows: self._texts(tf.RaggedTensor.from_tensor(rows)),
            tf.cast(token_ids, tf.int32),
        )

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        raise NotImplementedError

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to a folder, for `load`."""
        with replaced(Path(folder, self.model_file)) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        return cls(Path(folder, cls.model_file), **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {"added_tokens": self.added_tokens} if self.added_tokens else {}

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """More tokens than the SentencePiece model's, with their flags."""
        return [] if self._added is None else self._added.tokens

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def _spans(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns token ids, and their starts and ends in bytes of all texts end to end."""
        if self._added is not None:
            ids, starts, ends = self._added.tokenize(text, self._token_ids)
            return ids, starts.values, ends.values
        pieces, starts, ends = self._tokenizer().tokenize_with_offsets(text)
        lengths = tf.cast(tf.strings.length(text), tf.int64)  # (batch,), in bytes
        text_starts = tf.gather(tf.cumsum(lengths, exclusive=True), row_numbers(pieces))
        return (
            pieces.with_values(self._token_ids(pieces.values)),
            tf.cast(starts.values, tf.int64) + text_starts,
            tf.cast(ends.values, tf.int64) + text_starts,
        )

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to the encoder's."""
        raise NotImplementedError

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the pieces of the tokens in the SentencePiece model, except special ones."""
        raise NotImplementedError

    def _is_added(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns whether each token is one of the added ones, or after them."""
        return token_ids >= self.vocabulary_size - len(self._names)

    def _texts(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        """Converts ids (rows, None) to strings (rows,)."""
        if not self._names:
            return self._tokenizer().detokenize(self._pieces(token_ids))
        is_added = self._is_added(token_ids.values)
        return join_around(
            token_ids,
            is_added,
            self.tokens(token_ids.values),
            lambda parts: self._tokenizer().detokenize(self._pieces(parts)),
        )
