"""T5's tokenizer: a SentencePiece model, and extra ids that stand for gaps in a text."""

import os
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import replaced
from keras_transformers.tokenizers.sentencepiece import open_model
from keras_transformers.tokenizers.tensors import row_by_row, texts_of, with_ends

__all__ = ["T5Tokenizer"]

_SPECIAL_TOKENS = ["<pad>", "</s>", "<unk>"]
# Around extra ids, before the text is split there: not UTF-8, so that no text has it.
_SEPARATOR = b"\xff\xfe\xff"


class T5Tokenizer(tf.Module):
    """SentencePiece as T5 uses it (Raffel et al. 2020, arXiv:1910.10683).

    Ids equal those of Hugging Face's T5Tokenizer. "<extra_id_0>" and so on in a text are the extra
    ids, the last tokens of the vocabulary in reverse order; other special tokens' names are
    ordinary text. Characters outside the vocabulary become the unknown token.

    Args:
        path: a SentencePiece model, or a folder with `spiece.model`.
        num_extra_ids: number of extra ids (Hugging Face: extra_ids).
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only fill up its matrices. By default there are none.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        pad_token_id: 0.
        start_token_id: 0, too: padding starts a target.
        end_token_id: 1.
        unknown_token_id: 2.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, has other special tokens, or has more tokens
            than `vocabulary_size`.
    """

    pad_token_id = 0
    start_token_id = 0
    end_token_id = 1
    unknown_token_id = 2
    model_file = "spiece.model"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        num_extra_ids: int = 100,
        vocabulary_size: int | None = None,
        name: str = "t5_tokenizer",
    ) -> None:
        if num_extra_ids < 0:
            raise ValueError(f"num_extra_ids={num_extra_ids}: give a number of tokens, 0 or more")
        super().__init__(name=name)
        path = Path(path)
        path = path / self.model_file if path.is_dir() else path
        self._model, self._tokenizer = open_model(path)
        self.num_extra_ids = num_extra_ids
        self._num_pieces = int(self._tokenizer.vocab_size())
        self._num_tokens = self._num_pieces + num_extra_ids
        first = [
            token.decode("utf-8", "replace")
            for token in self._tokenizer.id_to_string(tf.range(min(3, self._num_pieces))).numpy()
        ]
        if first != _SPECIAL_TOKENS:
            raise ValueError(
                f"{path}: the first tokens are {first}, T5's are {_SPECIAL_TOKENS}: "
                "take the model's own spiece.model"
            )
        self.vocabulary_size = self._num_tokens if vocabulary_size is None else vocabulary_size
        if self.vocabulary_size < self._num_tokens:
            raise ValueError(
                f"{path}: {self._num_pieces} tokens and {num_extra_ids} extra ids, but the model "
                f"has {vocabulary_size}: use the vocabulary that belongs to it"
            )
        numbers = "|".join(map(str, range(num_extra_ids)))
        self._extra_id = f"<extra_id_(?:{numbers})>"

    def tokenize(
        self, text: Any, *, add_start: bool = False, add_end: bool = False
    ) -> tf.RaggedTensor:
        """Converts texts to token ids.

        Args:
            text: strings (batch,).
            add_start: add the start token before each row.
            add_end: add the end token after each row.

        Returns:
            int32 (batch, None).
        """
        text = texts_of(text)
        if self.num_extra_ids:
            separated = _SEPARATOR + rb"\0" + _SEPARATOR
            text = tf.strings.regex_replace(text, self._extra_id, separated)
        parts = tf.strings.split(text, _SEPARATOR)  # (batch, parts)
        part = parts.flat_values  # (all parts,)
        is_extra = tf.strings.regex_full_match(part, self._extra_id)
        tokens = self._tokenizer.tokenize(tf.where(is_extra, "", part))  # (all parts, None)
        number = tf.strings.regex_replace(tf.boolean_mask(part, is_extra), r"\D", "")
        extra = self._num_tokens - 1 - tf.strings.to_number(number, tf.int32)
        extra = tf.RaggedTensor.from_row_lengths(extra, tf.cast(is_extra, tf.int64))
        tokens = parts.with_values(tf.concat([tokens, extra], axis=1))  # (batch, parts, None)
        return with_ends(
            tokens.merge_dims(1, 2),
            start_token_id=self.start_token_id if add_start else None,
            end_token_id=self.end_token_id if add_end else None,
        )

    def detokenize(self, token_ids: Any) -> tf.Tensor:
        """Converts token ids to texts.

        Padding, end tokens and tokens without text are left out. The unknown token becomes " ⁇ ".
        Extra ids keep their names, between single spaces.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).
        """
        if isinstance(token_ids, tf.RaggedTensor):
            return self._texts(tf.cast(token_ids, tf.int32))
        return row_by_row(
            lambda rows: self._texts(tf.RaggedTensor.from_tensor(rows)),
            tf.cast(token_ids, tf.int32),
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to `spiece.model` in a folder, for `load`."""
        with replaced(Path(folder, self.model_file)) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from what `save` wrote and `config` returned."""
        return cls(folder, **config)

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {"num_extra_ids": self.num_extra_ids, "vocabulary_size": self.vocabulary_size}

    def tokens(self, token_ids: Any) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        number = tf.strings.as_string(self._num_tokens - 1 - token_ids)
        extra = tf.strings.join(["<extra_id_", number, ">"])
        without_text = tf.strings.join(["<unused_", tf.strings.as_string(token_ids), ">"])
        names = tf.where(token_ids < self._num_tokens, extra, without_text)
        return tf.where(token_ids < self._num_pieces, self._piece(token_ids), names)

    def _piece(self, token_ids: Any) -> tf.Tensor:
        return self._tokenizer.id_to_string(self._or_pad(token_ids))

    def _or_pad(self, token_ids: Any) -> Any:
        """Replaces ids that the SentencePiece model lacks by padding."""
        return tf.where(token_ids < self._num_pieces, token_ids, self.pad_token_id)

    def _texts(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        """Converts ragged ids (rows, None) to strings (rows,), part by part.

        An extra id is a part of its own, and so are the tokens between two of them.
        """
        ids, rows = token_ids.values, token_ids.value_rowids()
        is_extra = tf.logical_and(ids >= self._num_pieces, ids < self._num_tokens)
        row_before = tf.concat([[-1], rows], axis=0)[:-1]
        extra_before = tf.concat([[False], is_extra], axis=0)[:-1]
        starts = (rows != row_before) | is_extra | extra_before
        numbers = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        num_parts = tf.reduce_sum(tf.cast(starts, tf.int64))
        parts = tf.RaggedTensor.from_value_rowids(self._or_pad(ids), numbers, nrows=num_parts)
        text = tf.where(
            tf.boolean_mask(is_extra, starts),
            self.tokens(tf.boolean_mask(ids, starts)),
            self._tokenizer.detokenize(parts),
        )
        is_text = text != ""
        by_row = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(text, is_text),
            tf.boolean_mask(tf.boolean_mask(rows, starts), is_text),
            nrows=token_ids.nrows(),
        )
        return tf.strings.reduce_join(by_row, axis=1, separator=" ")
