"""ALBERT's tokenizer: SentencePiece on lower-cased text without accents, and BERT's packing."""

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

__all__ = ["AlbertTokenizer"]

_QUOTES = {"``": '"', "''": '"'}  # of the Penn Treebank


class AlbertTokenizer(BertPacking, EncoderPieces):
    """SentencePiece as ALBERT uses it (Lan et al. 2019, arXiv:1909.11942).

    Before the model reads a text, `` and '' become ", accents are removed (Unicode NFKD without
    combining marks) and letters are lower-cased. All this is compiled into the model's own
    normalization, so that it runs in the graph and spans are those of the original text. One text
    is packed as [CLS] a [SEP], a pair as [CLS] a [SEP] b [SEP]. Ids equal those of Hugging Face's
    AlbertTokenizer, except that a special token's name in a text is ordinary text, that either of
    two equally likely ways to split a word may be chosen, that U+0000 is dropped, and that with
    `keep_accents` the model's normalization also composes characters before certain marks.

    Unusual text:
      - White space ends a word; runs of it are one space.
      - Characters that the model does not know and invalid UTF-8 become the unknown token,
        neighbours together.
      - Empty or blank text has no tokens.

    Args:
        path: a SentencePiece model, or a folder with `spiece.model`.
        lowercase: whether to lower-case letters (Hugging Face: do_lower_case).
        keep_accents: whether accents stay.
        added_tokens: more tokens, after the model's: `id`, `content` and flags, as in the
            `added_tokens` of a tokenizer.json. Their names in a text are these tokens.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        pad_token_id: 0, id of <pad>.
        unknown_token_id: 1, id of <unk>.
        cls_token_id: 2, id of [CLS].
        sep_token_id: 3, id of [SEP].
        mask_token: "[MASK]".
        mask_token_id: 4.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <pad>, <unk>, [CLS],
            [SEP], [MASK], or added tokens do not fit: see `AddedPieces`.
    """

    model_file = "spiece.model"
    first_pieces = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    own_tokens = first_pieces
    pad_token_id = 0
    unknown_token_id = 1
    cls_token_id = 2
    sep_token_id = 3
    mask_token_id = 4
    mask_token = "[MASK]"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lowercase: bool = True,
        keep_accents: bool = False,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "albert_tokenizer",
    ) -> None:
        super().__init__(path, name=name)
        self.lowercase = lowercase
        self.keep_accents = keep_accents
        proto: Any = sentencepiece_model_pb2  # created at run time, without types
        model_proto = proto.ModelProto.FromString(self._model)
        spec = model_proto.normalizer_spec
        steps = _steps(lowercase, keep_accents)
        spec.precompiled_charsmap = folded(spec.precompiled_charsmap, *steps, replaced=_QUOTES)
        model = model_proto.SerializeToString()
        self._add(added_tokens, model, sentence_pieces(model), num_tokens=self._num_pieces)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        folding = {"lowercase": self.lowercase, "keep_accents": self.keep_accents}
        return {**folding, **super().config()}

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = token_ids < self._num_pieces
            pieces = self._tokenizer().id_to_string(tf.where(is_piece, token_ids, 0))
            if not self._names:
                return pieces
            place = tf.maximum(token_ids - self._num_pieces, 0)
            return tf.where(is_piece, pieces, tf.gather(tf.constant(self._names), place))

    @property
    def normalizers(self) -> list[dict[str, Any]]:
        """What happens before the model's own normalization, as in a tokenizer.json."""
        quotes: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": quote}, "content": content}
            for quote, content in _QUOTES.items()
        ]
        steps = _steps(self.lowercase, self.keep_accents)
        return [*quotes, *({"type": step} for step in steps)]

    def split_at_masks(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) at the mask token into pieces (batch, None).

        A mask stands for a word and the white space before it, so that is removed.
        """
        text = tf.strings.regex_replace(text, r"[\s\pZ]*\[MASK\]", self.mask_token)
        return tf.strings.split(text, self.mask_token)

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        return pieces

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        is_special = (token_ids < len(self.first_pieces)) & (token_ids != self.unknown_token_id)
        is_text = ~is_special & (token_ids < self._num_pieces)
        return tf.ragged.boolean_mask(token_ids, is_text)


def _steps(lowercase: bool, keep_accents: bool) -> list[str]:
    kinds = [] if keep_accents else ["NFKD", "StripAccents"]
    return [*kinds, *(["Lowercase"] if lowercase else [])]
