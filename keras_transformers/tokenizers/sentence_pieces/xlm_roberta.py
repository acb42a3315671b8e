"""XLM-RoBERTa's tokenizer: SentencePiece with fairseq's ids and RoBERTa's packing."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.packing import RobertaPacking
from keras_transformers.tokenizers.sentence_pieces.encoder_pieces import EncoderPieces

__all__ = ["XlmRobertaTokenizer"]

MODEL_FILE = "sentencepiece.bpe.model"

_FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")


class XlmRobertaTokenizer(RobertaPacking, EncoderPieces):
    """SentencePiece as XLM-RoBERTa uses it (Conneau et al. 2019, arXiv:1911.02116).

    A piece's id is one more than in the SentencePiece model, because fairseq puts <s> <pad> </s>
    <unk> first; <mask> is last. One text is packed as <s> a </s>, a pair as <s> a </s></s> b </s>.
    All methods run in the graph. Ids equal those of Hugging Face's XLMRobertaTokenizer, except that
    a special token's name in a text is ordinary text, and that either of two equally likely ways to
    split a word may be chosen ("AA" "A" or "A" "AA").

    Unusual text:
      - White space ends a word; runs of it are one space. The model's normalization converts other
        characters; XLM-RoBERTa's own applies Unicode NFKC.
      - Characters that the model does not know and invalid UTF-8 become the unknown token,
        neighbours together.
      - Empty or blank text has no tokens.

    Args:
        path: a SentencePiece model, or a folder with `sentencepiece.bpe.model`.
        added_tokens: more tokens, after <mask>: `id`, `content` and flags, as in the `added_tokens`
            of a tokenizer.json. Their names in a text are these tokens.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        start_token_id: 0, id of <s>.
        pad_token_id: 1, id of <pad>.
        end_token_id: 2, id of </s>.
        unknown_token_id: 3, id of <unk>.
        mask_token: "<mask>".
        mask_token_id: the last id before added tokens.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <unk>, <s>, </s>, or
            added tokens do not fit: see `AddedPieces`.
    """

    model_file = MODEL_FILE
    first_pieces = ("<unk>", "<s>", "</s>")
    start_token_id = 0
    pad_token_id = 1
    end_token_id = 2
    unknown_token_id = 3

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "xlm_roberta_tokenizer",
    ) -> None:
        super().__init__(path, name=name)
        self.mask_token_id = self._num_pieces + 1
        self.own_tokens = (*_FIRST_TOKENS, self.mask_token)
        self._add(added_tokens, self._model, self._tokenizer, num_tokens=self._num_pieces + 2)

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = (token_ids >= len(_FIRST_TOKENS)) & (token_ids < self.mask_token_id)
            pieces = self._tokenizer().id_to_string(tf.where(is_piece, token_ids - 1, 0))
            special = tf.constant([*_FIRST_TOKENS, self.mask_token, *self._names])
            after = tf.maximum(token_ids - self.mask_token_id, 0) + len(_FIRST_TOKENS)
            place = tf.where(token_ids < len(_FIRST_TOKENS), token_ids, after)
            return tf.where(is_piece, pieces, tf.gather(special, place))

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to ours; its unknown piece is 0."""
        return tf.where(pieces == 0, self.unknown_token_id, pieces + 1)

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the pieces of the tokens that the SentencePiece model has."""
        is_unknown = token_ids == self.unknown_token_id
        is_text = (token_ids >= self.unknown_token_id) & (token_ids != self.mask_token_id)
        if self._names:
            is_text &= (token_ids < self.mask_token_id) | (token_ids >= self.vocabulary_size)
        return tf.ragged.boolean_mask(tf.where(is_unknown, 0, token_ids - 1), is_text)
