"""XLM-RoBERTa's tokenizer: SentencePiece with fairseq's ids and RoBERTa's packing."""

import os
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import replaced
from keras_transformers.tokenizers import offsets
from keras_transformers.tokenizers.byte_pairs.gpt2_words import (
    Kinds,
    character_kinds,
    characters_of,
)
from keras_transformers.tokenizers.packing import RobertaPacking
from keras_transformers.tokenizers.sentencepiece import open_model
from keras_transformers.tokenizers.tensors import row_by_row, texts_of

__all__ = ["XlmRobertaTokenizer"]

MODEL_FILE = "sentencepiece.bpe.model"

_FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
_FIRST_PIECES = ["<unk>", "<s>", "</s>"]  # the SentencePiece model's own


class XlmRobertaTokenizer(RobertaPacking, tf.Module):
    """SentencePiece as XLM-RoBERTa uses it (Conneau et al. 2019, arXiv:1911.02116).

    A piece's id is one more than in the SentencePiece model, because fairseq puts <s> <pad> </s>
    <unk> first; <mask> is last. One text is packed as <s> a </s>, a pair as <s> a </s></s> b </s>.
    All methods run in the graph. Ids equal those of Hugging Face's XLMRobertaTokenizer, except that
    a special token's name in a text is ordinary text, and that either of two equally likely ways to
    split a word may be taken ("AA" "A" or "A" "AA").

    Unusual text:
      - White space ends a word; runs of it are one space. The model's normalization decides what
        becomes of other characters; XLM-RoBERTa's own applies Unicode NFKC.
      - Characters that the model does not know and invalid UTF-8 become the unknown token,
        neighbours together.
      - Empty or blank text has no tokens.

    Args:
        path: a SentencePiece model, or a folder with `sentencepiece.bpe.model`.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        start_token_id: 0, id of <s>.
        pad_token_id: 1, id of <pad>.
        end_token_id: 2, id of </s>.
        unknown_token_id: 3, id of <unk>.
        mask_token: "<mask>".
        mask_token_id: the last id.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, or its first pieces are not <unk>, <s>, </s>.
    """

    start_token_id = 0
    pad_token_id = 1
    end_token_id = 2
    unknown_token_id = 3

    def __init__(
        self, path: str | os.PathLike[str], *, name: str = "xlm_roberta_tokenizer"
    ) -> None:
        super().__init__(name=name)
        path = Path(path)
        path = path / MODEL_FILE if path.is_dir() else path
        self._model, self._tokenizer = open_model(path)
        num_pieces = int(self._tokenizer.vocab_size())
        found = self._tokenizer.id_to_string(tf.range(min(3, num_pieces))).numpy().tolist()
        if [piece.decode() for piece in found] != _FIRST_PIECES:
            raise ValueError(
                f"{path}: the first pieces are {[piece.decode() for piece in found]}, expected "
                f"{_FIRST_PIECES} as in XLM-RoBERTa: take the tokenizer of this model's family"
            )
        self.vocabulary_size = num_pieces + 2
        self.mask_token_id = num_pieces + 1
        with tf.device("CPU:0"):  # where strings live
            self._kinds = Kinds(*map(tf.constant, character_kinds()))

    def tokenize(self, text: Any) -> tf.RaggedTensor:
        """Converts texts, strings (batch,), to token ids, int32 (batch, None)."""
        pieces = self._tokenizer.tokenize(texts_of(text))
        return pieces.with_values(self._token_ids(pieces.values))

    def tokenize_with_offsets(
        self, text: Any
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
        pieces, starts, ends = self._tokenizer.tokenize_with_offsets(text)
        with tf.device("CPU:0"):
            characters = characters_of(text, self._kinds)
            rows = pieces.value_rowids()
            lengths = tf.cast(tf.strings.length(text), tf.int64)  # (batch,), in bytes
            text_starts = tf.gather(tf.cumsum(lengths, exclusive=True), rows)
            first, last = offsets.without_white_space(
                text,
                tf.cast(starts.values, tf.int64) + text_starts,
                tf.cast(ends.values, tf.int64) + text_starts,
                rows,
                character_starts=characters.starts,
                is_white_space=characters.is_white_space,
            )
            ids = pieces.with_values(self._token_ids(pieces.values))
            return ids, ids.with_values(first), ids.with_values(last)

    def detokenize(self, token_ids: Any) -> tf.Tensor:
        """Converts token ids to texts.

        <s>, <pad>, </s> and <mask> are left out; the unknown token becomes " ⁇ ".

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).

        Raises:
            tf.errors.OutOfRangeError: an id is outside the vocabulary.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.pad_token_id)
        return row_by_row(self._join, tf.cast(token_ids, tf.int32))

    def tokens(self, token_ids: Any) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = (token_ids >= len(_FIRST_TOKENS)) & (token_ids != self.mask_token_id)
            pieces = self._tokenizer.id_to_string(tf.where(is_piece, token_ids - 1, 0))
            special = tf.constant([*_FIRST_TOKENS, self.mask_token])
            place = tf.minimum(token_ids, len(_FIRST_TOKENS))
            return tf.where(is_piece, pieces, tf.gather(special, place))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to `sentencepiece.bpe.model` in a folder, for `load`."""
        with replaced(Path(folder, MODEL_FILE)) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from what `save` wrote and `config` returned."""
        return cls(Path(folder, MODEL_FILE), **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {}

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to ours; its unknown piece is 0."""
        return tf.where(pieces == 0, self.unknown_token_id, pieces + 1)

    def _join(self, token_ids: tf.Tensor) -> tf.Tensor:
        is_unknown = token_ids == self.unknown_token_id
        is_text = (token_ids >= self.unknown_token_id) & (token_ids != self.mask_token_id)
        pieces = tf.where(is_unknown, 0, token_ids - 1)
        return self._tokenizer.detokenize(tf.ragged.boolean_mask(pieces, is_text))
