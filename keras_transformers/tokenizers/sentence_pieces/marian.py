"""Marian's tokenizers: a SentencePiece model for each side, and one vocabulary for both."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import tensorflow as tf

from keras_transformers.files import replaced, write_json
from keras_transformers.tokenizers.byte_pairs.files import read_tokens
from keras_transformers.tokenizers.sentence_pieces.added import AddedPieces
from keras_transformers.tokenizers.sentencepiece import open_model
from keras_transformers.tokenizers.targets import Targets
from keras_transformers.tokenizers.tensors import kept, row_by_row

__all__ = ["MarianTokenizer"]

Side = Literal["source", "target"]

_VOCABULARY_FILE = "vocab.json"
_END, _UNKNOWN, _PAD = "</s>", "<unk>", "<pad>"
# The start of sources for models with several target languages, such as ">>fra<<".
_LANGUAGE = r">>.*?<<"


class MarianTokenizer(Targets, tf.Module):
    """One side's SentencePiece as Marian uses it (Opus-MT).

    Ids equal those of Hugging Face's MarianTokenizer without sacremoses, which would also replace
    unusual punctuation; special tokens' names in a text are ordinary text. A language such as
    ">>fra<<" at the start of a text is one token. Text outside the vocabulary becomes the unknown
    token.

    Args:
        path: a folder with `vocab.json` and `source.spm` or `target.spm`.
        side: whose SentencePiece model to use, "source" or "target".
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        added_tokens: more tokens, after those of `vocab.json`: `id`, `content` and flags, as in the
            `added_tokens` of a tokenizer.json. Their names in a text are these tokens, matched
            before normalization regardless of `normalized`, as in transformers' tokenizer.
        name: name of the module.

    Attributes:
        vocabulary: all tokens, by id.
        vocabulary_size: the number of tokens.
        end_token_id: id of "</s>".
        unknown_token_id: id of "<unk>".
        pad_token_id: id of "<pad>".
        start_token_id: the same: padding starts a target.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: an unknown side, a file that is not what its name says, a vocabulary without
            the special tokens or with more tokens than `vocabulary_size`, or added tokens that do
            not fit: see `AddedPieces`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        side: Side = "source",
        vocabulary_size: int | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "marian_tokenizer",
    ) -> None:
        if side not in get_args(Side):
            raise ValueError(f"side={side!r} is unknown: use 'source' or 'target'")
        super().__init__(name=name)
        self.side = side
        self._model, self._tokenizer = open_model(Path(path, f"{side}.spm"))
        tokens = read_tokens(Path(path, _VOCABULARY_FILE))
        self.own_tokens = (_END, _UNKNOWN, _PAD)
        self._num_known = len(tokens)
        self._added = None
        if added_tokens:
            raw = [{**token, "normalized": False} for token in added_tokens]
            if single := [token["content"] for token in raw if token.get("single_word")]:
                raise ValueError(
                    f"added token {single[0]!r}: single_word=true is not supported with Marian: "
                    "it has a different meaning there in transformers"
                )
            self._added = AddedPieces(raw, self._model, self._tokenizer, num_tokens=len(tokens))
            tokens = [*tokens, *self._added.names]
        self._num_tokens = len(tokens)
        self.vocabulary_size = self._num_tokens if vocabulary_size is None else vocabulary_size
        if self.vocabulary_size < self._num_tokens:
            raise ValueError(
                f"{Path(path, _VOCABULARY_FILE)} has {self._num_tokens} tokens, but the model only "
                f"{vocabulary_size}: use the vocabulary that belongs to the weights"
            )
        without_text = range(self._num_tokens, self.vocabulary_size)
        self.vocabulary = [*tokens, *(f"<unused_{index}>" for index in without_text)]
        ids = {token: index for index, token in enumerate(tokens)}
        if missing := [token for token in (_END, _UNKNOWN, _PAD) if token not in ids]:
            raise ValueError(
                f"{Path(path, _VOCABULARY_FILE)}: lacks {', '.join(missing)}: use the model's own "
                "vocabulary"
            )
        self.end_token_id, self.unknown_token_id = ids[_END], ids[_UNKNOWN]
        self.pad_token_id = self.start_token_id = ids[_PAD]
        pieces = self._tokenizer().id_to_string(tf.range(self._tokenizer().size)).numpy()
        self._ids = tf.constant(
            [ids.get(piece.decode("utf-8", "replace"), ids[_UNKNOWN]) for piece in pieces]
        )
        languages = [token for token in ids if token.startswith(">>") and token.endswith("<<")]
        # No text starts with the last entry, which makes this a table even without languages.
        self._languages = tf.constant([*languages, ""])
        self._language_ids = tf.constant([*(ids[token] for token in languages), ids[_UNKNOWN]])

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        if self._added is not None:
            return self._added.between(text, self._without_added)
        return self._without_added(text)

    def _without_added(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Converts texts without added tokens, or parts of texts, to token ids."""
        has_language = tf.strings.regex_full_match(text, f"(?s){_LANGUAGE}.*")
        language = tf.strings.regex_replace(text, f"(?s)^({_LANGUAGE}).*$", r"\1")
        text = tf.strings.regex_replace(text, f"(?s)^{_LANGUAGE}", "", replace_global=False)
        tokens = tf.ragged.map_flat_values(
            lambda pieces: tf.gather(self._ids, pieces), self._tokenizer().tokenize(text)
        )
        is_this = language[:, None] == self._languages[None]  # (batch, languages)
        language_id = tf.gather(self._language_ids, tf.argmax(is_this, axis=1))
        language_id = tf.where(tf.reduce_any(is_this, axis=1), language_id, self.unknown_token_id)
        first = tf.RaggedTensor.from_row_lengths(
            kept(language_id, has_language), tf.cast(has_language, tf.int64)
        )
        return tf.concat([first, tokens], axis=1)

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts.

        Padding, start and end tokens are left out. The unknown token becomes " ⁇ ". An added token
        stays in place, without additional spaces.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).
        """
        if isinstance(token_ids, tf.RaggedTensor):
            pieces = tf.ragged.map_flat_values(self._pieces, token_ids)
            return _joined(tf.strings.reduce_join(pieces, axis=1))
        return row_by_row(
            lambda ids: _joined(tf.strings.reduce_join(self._pieces(ids), axis=1)),
            tf.cast(token_ids, tf.int32),
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the vocabulary and this side's SentencePiece model to a folder, for `load`."""
        write_json(
            Path(folder, _VOCABULARY_FILE),
            {token: index for index, token in enumerate(self.vocabulary[: self._num_known])},
        )
        with replaced(Path(folder, f"{self.side}.spm")) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        return cls(folder, **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        added = {"added_tokens": self.added_tokens} if self.added_tokens else {}
        return {"side": self.side, "vocabulary_size": self.vocabulary_size, **added}

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """More tokens than those of `vocab.json`, with their flags."""
        return [] if self._added is None else self._added.tokens

    @property
    def num_tokens(self) -> int:
        """The number of tokens, without those that only pad a model's matrices."""
        return self._num_tokens

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        return tf.gather(tf.constant(self.vocabulary), token_ids)

    def _pieces(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.where(token_ids == self.unknown_token_id, " ⁇ ", self.tokens(token_ids))
        is_end = (token_ids == self.end_token_id) | (token_ids == self.pad_token_id)
        return tf.where(is_end | (token_ids >= self._num_tokens), "", pieces)


def _joined(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.strip(tf.strings.regex_replace(text, "▁", " "))
