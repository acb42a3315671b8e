"""Defines the base class of SentencePiece tokenizers with fairseq's ids and RoBERTa's packing."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from keras_transformers.tokenizers.packing import RobertaPacking
from keras_transformers.tokenizers.sentence_pieces.encoder_pieces import EncoderPieces

__all__: list[str] = []


class FairseqPieces(RobertaPacking, EncoderPieces):
    """A SentencePiece model behind fairseq's own first tokens, with <mask> after it.

    A base class of tokenizers, which define the first tokens. The token <unk> stands for the
    model's unknown piece, 0; every other piece keeps its place in the model.

    Args:
        path: a SentencePiece model, or a folder with `model_file`.
        added_tokens: more tokens, after <mask>; see `AddedPieces`.
        name: name of the module.

    Attributes:
        first_tokens: the tokens before those of the model.
        offset: the difference between a token's id and its piece's.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <unk>, <s>, </s>, or
            added tokens do not fit: see `AddedPieces`.
    """

    model_file = "sentencepiece.bpe.model"
    first_pieces = ("<unk>", "<s>", "</s>")
    first_tokens: ClassVar[Sequence[str]]
    offset: ClassVar[int]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str,
    ) -> None:
        super().__init__(path, name=name)
        self.mask_token_id = self._num_pieces + self.offset
        self.own_tokens = tuple(
            dict.fromkeys((*self.first_tokens, *self.first_pieces, self.mask_token))
        )
        num_tokens = self.mask_token_id + 1
        self._add(added_tokens, self._model, self._tokenizer, num_tokens=num_tokens)

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        num_first = len(self.first_tokens)
        with tf.device("CPU:0"):
            is_piece = (token_ids >= num_first) & (token_ids < self.mask_token_id)
            pieces = self._tokenizer().id_to_string(tf.where(is_piece, token_ids - self.offset, 0))
            special = tf.constant([*self.first_tokens, self.mask_token, *self._names])
            after = tf.maximum(token_ids - self.mask_token_id, 0) + num_first
            place = tf.where(token_ids < num_first, token_ids, after)
            return tf.where(is_piece, pieces, tf.gather(special, place))

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to ours; its unknown piece is 0."""
        return tf.where(pieces == 0, self.unknown_token_id, pieces + self.offset)

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the pieces of the tokens that the SentencePiece model has."""
        is_unknown = token_ids == self.unknown_token_id
        is_text = token_ids >= self.offset + len(self.first_pieces)
        is_text = (is_unknown | is_text) & (token_ids != self.mask_token_id)
        if self._names:
            is_text &= (token_ids < self.mask_token_id) | (token_ids >= self.vocabulary_size)
        return tf.ragged.boolean_mask(tf.where(is_unknown, 0, token_ids - self.offset), is_text)
