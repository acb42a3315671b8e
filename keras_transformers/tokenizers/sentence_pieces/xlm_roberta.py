"""XLM-RoBERTa's tokenizer: SentencePiece with fairseq's ids and RoBERTa's packing."""

import os
from collections.abc import Mapping, Sequence
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
from keras_transformers.tokenizers.sentence_pieces.added import AddedPieces, join_around
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
        own_tokens: those that are ordinary text in a text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <unk>, <s>, </s>, or
            added tokens do not fit: see `AddedPieces`.
    """

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
        self.mask_token_id = num_pieces + 1
        self.own_tokens = (*_FIRST_TOKENS, self.mask_token)
        self._added = (
            AddedPieces(added_tokens, self._model, self._tokenizer, num_tokens=num_pieces + 2)
            if added_tokens
            else None
        )
        self._names = () if self._added is None else self._added.names
        self.vocabulary_size = num_pieces + 2 + len(self._names)
        with tf.device("CPU:0"):  # where strings live
            self._kinds = Kinds(*map(tf.constant, character_kinds()))

    def tokenize(self, text: Any) -> tf.RaggedTensor:
        """Converts texts, strings (batch,), to token ids, int32 (batch, None)."""
        if self._added is not None:
            return self._added.tokenize(texts_of(text), self._token_ids)[0]
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

    def detokenize(self, token_ids: Any) -> tf.Tensor:
        """Converts token ids to texts.

        <s>, <pad>, </s> and <mask> are left out; the unknown token becomes " ⁇ ". Added tokens keep
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

    def tokens(self, token_ids: Any) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = (token_ids >= len(_FIRST_TOKENS)) & (token_ids < self.mask_token_id)
            pieces = self._tokenizer.id_to_string(tf.where(is_piece, token_ids - 1, 0))
            special = tf.constant([*_FIRST_TOKENS, self.mask_token, *self._names])
            after = tf.maximum(token_ids - self.mask_token_id, 0) + len(_FIRST_TOKENS)
            place = tf.where(token_ids < len(_FIRST_TOKENS), token_ids, after)
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
        return {"added_tokens": self.added_tokens} if self.added_tokens else {}

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """More tokens than the SentencePiece model's, with their flags."""
        return [] if self._added is None else self._added.tokens

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to ours; its unknown piece is 0."""
        return tf.where(pieces == 0, self.unknown_token_id, pieces + 1)

    def _spans(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns token ids, and their starts and ends in bytes of all texts end to end."""
        if self._added is not None:
            ids, starts, ends = self._added.tokenize(text, self._token_ids)
            return ids, starts.values, ends.values
        pieces, starts, ends = self._tokenizer.tokenize_with_offsets(text)
        lengths = tf.cast(tf.strings.length(text), tf.int64)  # (batch,), in bytes
        text_starts = tf.gather(tf.cumsum(lengths, exclusive=True), pieces.value_rowids())
        return (
            pieces.with_values(self._token_ids(pieces.values)),
            tf.cast(starts.values, tf.int64) + text_starts,
            tf.cast(ends.values, tf.int64) + text_starts,
        )

    def _texts(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        """Converts ids (rows, None) to strings (rows,)."""
        if not self._names:
            return self._tokenizer.detokenize(self._pieces(token_ids))
        is_added = token_ids.values > self.mask_token_id
        return join_around(
            token_ids,
            is_added,
            self.tokens(token_ids.values),
            lambda parts: self._tokenizer.detokenize(self._pieces(parts)),
        )

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the pieces of the tokens that the SentencePiece model has."""
        is_unknown = token_ids == self.unknown_token_id
        is_text = (token_ids >= self.unknown_token_id) & (token_ids != self.mask_token_id)
        if self._names:
            is_text &= (token_ids < self.mask_token_id) | (token_ids >= self.vocabulary_size)
        return tf.ragged.boolean_mask(tf.where(is_unknown, 0, token_ids - 1), is_text)
