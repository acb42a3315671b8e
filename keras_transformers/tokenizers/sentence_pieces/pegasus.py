"""PEGASUS's tokenizer: a SentencePiece model behind the tokens of its pretraining."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.sentence_pieces.encoder_pieces import EncoderPieces
from keras_transformers.tokenizers.targets import Targets

__all__ = ["PegasusTokenizer"]

_OFFSET = 103
# Up to the SentencePiece model's <unk>; those after </s> occur only in pretraining.
_FIRST_TOKENS = (
    *("<pad>", "</s>", "<mask_1>", "<mask_2>"),
    *(f"<unk_{number}>" for number in range(2, _OFFSET)),
)


class PegasusTokenizer(Targets, EncoderPieces):
    """SentencePiece as PEGASUS uses it (Zhang et al. 2019, arXiv:1912.08777).

    A piece's id is 103 more than in the SentencePiece model: the ids between "</s>" and "<unk>" are
    tokens of the pretraining. Ids equal those of Hugging Face's PegasusTokenizer, except that a
    special token's name in a text, such as "<mask_1>", is ordinary text. Characters outside the
    vocabulary become the unknown token. "<n>", a line break in some models' summaries, stays so.

    Args:
        path: a SentencePiece model, or a folder with `spiece.model`.
        added_tokens: more tokens, after the pieces: `id`, `content` and flags, as in the
            `added_tokens` of a tokenizer.json. Their names in a text are these tokens.
        name: name of the module.

    Attributes:
        own_tokens: the tokens whose names in a text are ordinary text.
        vocabulary_size: the number of tokens.
        pad_token_id: 0.
        start_token_id: also 0, because padding starts a target.
        end_token_id: 1.
        mask_token_id: 3, id of "<mask_2>".
        unknown_token_id: 105.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <pad>, </s>, <unk>, or
            added tokens do not fit: see `AddedPieces`.
    """

    model_file = "spiece.model"
    first_pieces = ("<pad>", "</s>", "<unk>")
    mask_token = "<mask_2>"
    pad_token_id = 0
    start_token_id = 0
    end_token_id = 1
    mask_token_id = 3
    unknown_token_id = len(_FIRST_TOKENS)
    own_tokens = (*_FIRST_TOKENS, "<unk>")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "pegasus_tokenizer",
    ) -> None:
        super().__init__(path, name=name)
        num_tokens = _OFFSET + self._num_pieces
        self._add(added_tokens, self._model, self._tokenizer, num_tokens=num_tokens)

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = self._is_piece(token_ids)
            pieces = self._tokenizer().id_to_string(tf.where(is_piece, token_ids - _OFFSET, 0))
            others = tf.constant([*_FIRST_TOKENS, *self._names])
            is_first = token_ids < self.unknown_token_id
            place = tf.where(is_first, token_ids, token_ids - self._num_pieces + 2)
            return tf.where(is_piece, pieces, tf.gather(others, tf.where(is_piece, 0, place)))

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return EncoderPieces.tokenize(self, text)

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to ours."""
        return pieces + _OFFSET

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the pieces of the tokens that the SentencePiece model has."""
        return tf.ragged.boolean_mask(token_ids - _OFFSET, self._is_piece(token_ids))

    def _is_piece(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        is_first = token_ids < self.unknown_token_id
        return tf.logical_not(is_first | (token_ids >= _OFFSET + self._num_pieces))
