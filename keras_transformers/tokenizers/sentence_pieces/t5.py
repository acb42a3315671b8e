"""T5's tokenizer: a SentencePiece model, and extra ids that stand for gaps in a text."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import replaced
from keras_transformers.tokenizers.sentence_pieces.added import AddedPieces, join_around
from keras_transformers.tokenizers.sentencepiece import open_model
from keras_transformers.tokenizers.targets import Targets
from keras_transformers.tokenizers.tensors import kept, row_by_row

__all__ = ["T5Tokenizer"]

_SPECIAL_TOKENS = ["<pad>", "</s>", "<unk>"]
# Around extra ids, before the text is split there: not UTF-8, so that no text contains it.
_SEPARATOR = b"\xff\xfe\xff"


class T5Tokenizer(Targets, tf.Module):
    """SentencePiece as T5 uses it (Raffel et al. 2020, arXiv:1910.10683).

    Ids equal those of Hugging Face's T5Tokenizer. "<extra_id_0>" and so on in a text are the extra
    ids, the last tokens of the vocabulary in reverse order; other special tokens' names are
    ordinary text. Characters outside the vocabulary become the unknown token.

    Args:
        path: a SentencePiece model, or a folder with `spiece.model`.
        num_extra_ids: number of extra ids (Hugging Face: extra_ids).
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        added_tokens: more tokens, after the extra ids: `id`, `content` and flags, as in the
            `added_tokens` of a tokenizer.json. Their names in a text are these tokens.
        name: name of the module.

    Attributes:
        own_tokens: the tokens without flags: the extra ids, and those whose names are ordinary
            text.
        vocabulary_size: the number of tokens.
        pad_token_id: 0.
        start_token_id: also 0, because padding starts a target.
        end_token_id: 1.
        unknown_token_id: 2.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, has different special tokens, has more tokens
            than `vocabulary_size`, or added tokens do not fit: see `AddedPieces`.
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
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "t5_tokenizer",
    ) -> None:
        if num_extra_ids < 0:
            raise ValueError(
                f"num_extra_ids={num_extra_ids}: expected a number of tokens, 0 or more"
            )
        super().__init__(name=name)
        path = Path(path)
        path = path / self.model_file if path.is_dir() else path
        self._model, self._tokenizer = open_model(path)
        self.num_extra_ids = num_extra_ids
        self._num_pieces = self._tokenizer().size
        extra_ids = [f"<extra_id_{number}>" for number in reversed(range(num_extra_ids))]
        self._extra_end = self._num_pieces + num_extra_ids
        self.own_tokens = (*_SPECIAL_TOKENS, *extra_ids)
        self._added = None
        if added_tokens:
            extra = [
                {"id": number, "content": name}
                for number, name in enumerate(extra_ids, self._num_pieces)
            ]
            self._added = AddedPieces(
                added_tokens,
                self._model,
                self._tokenizer,
                num_tokens=self._extra_end,
                also=extra,
            )
        self._names = () if self._added is None else self._added.names
        self._num_tokens = self._extra_end + len(self._names)
        first = [
            token.decode("utf-8", "replace")
            for token in self._tokenizer().id_to_string(tf.range(min(3, self._num_pieces))).numpy()
        ]
        if first != _SPECIAL_TOKENS:
            raise ValueError(
                f"{path}: the first tokens are {first}, T5's are {_SPECIAL_TOKENS}: "
                "use the model's own spiece.model"
            )
        self.vocabulary_size = self._num_tokens if vocabulary_size is None else vocabulary_size
        if self.vocabulary_size < self._num_tokens:
            raise ValueError(
                f"{path}: {self._num_pieces} tokens and {num_extra_ids} extra ids"
                f"{f' and {len(self._names)} added tokens' if self._names else ''}, but the model "
                f"has {vocabulary_size}: use the vocabulary that belongs to it"
            )
        numbers = "|".join(map(str, range(num_extra_ids)))
        self._extra_id = f"<extra_id_(?:{numbers})>"

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        if self._added is not None:
            return self._added.tokenize(text, tf.identity)[0]
        if self.num_extra_ids:
            separated = _SEPARATOR + rb"\0" + _SEPARATOR
            text = tf.strings.regex_replace(text, self._extra_id, separated)
        parts = tf.strings.split(text, _SEPARATOR)  # (batch, parts)
        part = parts.flat_values  # (all parts,)
        is_extra = tf.strings.regex_full_match(part, self._extra_id)
        tokens = self._tokenizer().tokenize(tf.where(is_extra, "", part))  # (all parts, None)
        number = tf.strings.regex_replace(kept(part, is_extra), r"\D", "")
        extra = self._extra_end - 1 - tf.strings.to_number(number, tf.int32)
        extra = tf.RaggedTensor.from_row_lengths(extra, tf.cast(is_extra, tf.int64))
        tokens = parts.with_values(tf.concat([tokens, extra], axis=1))  # (batch, parts, None)
        return tokens.merge_dims(1, 2)

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts.

        Padding, end tokens and tokens without text are left out. The unknown token becomes " ⁇ ".
        Extra ids and added tokens keep their names, between single spaces.

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
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        return cls(folder, **config)

    @property
    def num_tokens(self) -> int:
        """The number of tokens, without those that only pad a model's matrices."""
        return self._num_tokens

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        added = {"added_tokens": self.added_tokens} if self.added_tokens else {}
        sizes = {"num_extra_ids": self.num_extra_ids, "vocabulary_size": self.vocabulary_size}
        return {**sizes, **added}

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """More tokens than the SentencePiece model's and the extra ids, with their flags."""
        return [] if self._added is None else self._added.tokens

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        number = tf.strings.as_string(self._extra_end - 1 - token_ids)
        extra = tf.strings.join(["<extra_id_", number, ">"])
        names = tf.strings.join(["<unused_", tf.strings.as_string(token_ids), ">"])
        if self._names:
            place = tf.clip_by_value(token_ids - self._extra_end, 0, len(self._names) - 1)
            added = tf.gather(tf.constant(self._names), place)
            names = tf.where(token_ids < self._num_tokens, added, names)
        names = tf.where(token_ids < self._extra_end, extra, names)
        return tf.where(token_ids < self._num_pieces, self._piece(token_ids), names)

    def _piece(self, token_ids: tf.Tensor) -> tf.Tensor:
        return self._tokenizer().id_to_string(self._or_pad(token_ids))

    def _or_pad(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Replaces ids that the SentencePiece model lacks with padding."""
        return tf.where(token_ids < self._num_pieces, token_ids, self.pad_token_id)

    def _texts(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        """Converts ragged ids (rows, None) to strings (rows,)."""
        ids = token_ids.values
        return join_around(
            token_ids,
            tf.logical_and(ids >= self._num_pieces, ids < self._num_tokens),
            self.tokens(ids),
            lambda parts: self._tokenizer().detokenize(
                tf.ragged.map_flat_values(self._or_pad, parts)
            ),
        )
