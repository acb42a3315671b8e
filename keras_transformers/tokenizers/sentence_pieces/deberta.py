"""DeBERTa's tokenizer, of versions 2 and 3: SentencePiece, a mask after it, and BERT's packing."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from keras_transformers.tokenizers.packing import BertPacking
from keras_transformers.tokenizers.sentence_pieces.encoder_pieces import EncoderPieces
from keras_transformers.tokenizers.sentence_pieces.folding import folded
from keras_transformers.tokenizers.tensors import Texts
from keras_transformers.tokenizers.text_ops.forms import sentence_pieces

__all__ = ["DebertaTokenizer"]

_NORMAL, _BYTE = 1, 6  # types of pieces


class DebertaTokenizer(BertPacking, EncoderPieces):
    """SentencePiece as DeBERTa v2 and v3 use it (He et al. 2021, arXiv:2111.09543).

    Ids are those of the SentencePiece model, and [MASK] follows them. One text is packed as
    [CLS] a [SEP], a pair as [CLS] a [SEP] b [SEP]. All methods run in the graph. Ids equal those of
    the tokenizer.json that transformers 4 makes of the model, except that a special token's name in
    a text is ordinary text, that either of two equally likely ways to split a word may be chosen,
    and that a text which ends with a character that becomes a space, such as U+200B, has no token
    for it. transformers 5 composes characters (NFC) in place of the model's own normalization, so
    its ids differ where that does more, as in "ﬁ" or "½".

    Unusual text:
      - White space ends a word; runs of it are one space.
      - Characters that the model does not know and invalid UTF-8 become the unknown token,
        neighbours together; the model's bytes are not used.
      - Empty or blank text has no tokens.

    Args:
        path: a SentencePiece model, or a folder with `spm.model`.
        lowercase: whether to lower-case letters (Hugging Face: do_lower_case).
        added_tokens: more tokens, after [MASK]: `id`, `content` and flags, as in the `added_tokens`
            of a tokenizer.json. Their names in a text are these tokens.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        pad_token_id: 0, id of [PAD].
        cls_token_id: 1, id of [CLS].
        sep_token_id: 2, id of [SEP].
        unknown_token_id: 3, id of [UNK].
        mask_token: "[MASK]".
        mask_token_id: the last id before added tokens.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not [PAD], [CLS], [SEP],
            [UNK], or added tokens do not fit: see `AddedPieces`.
    """

    model_file = "spm.model"
    first_pieces = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
    own_tokens = (*first_pieces, "[MASK]")
    pad_token_id = 0
    cls_token_id = 1
    sep_token_id = 2
    unknown_token_id = 3
    mask_token = "[MASK]"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lowercase: bool = False,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "deberta_tokenizer",
    ) -> None:
        super().__init__(path, name=name)
        self.lowercase = lowercase
        self.mask_token_id = self._num_pieces
        proto: Any = sentencepiece_model_pb2  # created at run time, without types
        model_proto = proto.ModelProto.FromString(self._model)
        # The fast tokenizer takes the bytes' pieces for words.
        model_proto.trainer_spec.byte_fallback = False
        for piece in model_proto.pieces:
            if piece.type == _BYTE:
                piece.type = _NORMAL
        if lowercase:
            spec = model_proto.normalizer_spec
            spec.precompiled_charsmap = folded(spec.precompiled_charsmap, "Lowercase")
        model = model_proto.SerializeToString()
        self._add(added_tokens, model, sentence_pieces(model), num_tokens=self._num_pieces + 1)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {"lowercase": self.lowercase, **super().config()}

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = token_ids < self._num_pieces
            pieces = self._tokenizer().id_to_string(tf.where(is_piece, token_ids, 0))
            place = tf.maximum(token_ids - self._num_pieces, 0)
            after = tf.constant([self.mask_token, *self._names])
            return tf.where(is_piece, pieces, tf.gather(after, place))

    @property
    def normalizers(self) -> list[dict[str, Any]]:
        """What happens before the model's own normalization, as in a tokenizer.json."""
        strip = {"type": "Strip", "strip_left": True, "strip_right": True}
        return [*([{"type": "Lowercase"}] if self.lowercase else []), strip]

    def split_at_masks(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) at the mask token into pieces (batch, None)."""
        return tf.strings.split(text, self.mask_token)

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        return pieces

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        is_text = (token_ids >= self.unknown_token_id) & (token_ids < self._num_pieces)
        return tf.ragged.boolean_mask(token_ids, is_text)
