"""M2M-100's tokenizer: SentencePiece, a vocabulary of its pieces, and tokens for languages."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import replaced, write_json
from keras_transformers.tokenizers.byte_pairs.files import read_tokens
from keras_transformers.tokenizers.languages import Languages
from keras_transformers.tokenizers.sentence_pieces.nllb import checked_size
from keras_transformers.tokenizers.sentencepiece import open_model
from keras_transformers.tokenizers.tensors import row_by_row

__all__ = ["M2M100Tokenizer"]

_VOCABULARY_FILE, _MODEL_FILE = "vocab.json", "sentencepiece.bpe.model"
_FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
# Those of M2M-100, in the order of their ids.
_CODES = """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha
    he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my
    ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz
    vi wo xh yi yo zh zu
"""
M2M_100_LANGUAGES = tuple(_CODES.split())
# Those of its models for WMT 2021 (Hugging Face: language_codes="wmt21").
WMT21_LANGUAGES = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")


class M2M100Tokenizer(Languages, tf.Module):
    """SentencePiece as M2M-100 uses it (Fan et al. 2020, arXiv:2010.11125).

    `vocab.json` has the ids of the pieces; the languages' tokens, such as "__de__", follow. A
    source is its language, text and </s>; a target is </s>, its language, text and </s>. Ids equal
    those of Hugging Face's M2M100Tokenizer, except that a special token's name in a text is
    ordinary text.

    Args:
        path: a folder with `vocab.json` and `sentencepiece.bpe.model`.
        languages: codes of the languages, in the order of their ids; M2M-100's by default.
        source_language: the sources' code, such as "de".
        target_language: the targets' code.
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices (Hugging Face: num_madeup_words). By default there
            are none.
        name: name of the module.

    Attributes:
        languages: code -> id of its token.
        vocabulary: all tokens, by id.
        vocabulary_size: the number of tokens.
        num_tokens: the same, without those that only pad a model's matrices.
        pad_token_id: 1, id of <pad>.
        end_token_id: 2, id of </s>.
        start_token_id: the same: </s> starts a target.
        unknown_token_id: 3, id of <unk>.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not what its name says, the first tokens are not <s> <pad> </s> <unk>,
            a language is unknown, or `vocabulary_size` is too small.
    """

    start_token_id = 2
    pad_token_id = 1
    end_token_id = 2
    unknown_token_id = 3

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        languages: Sequence[str] = M2M_100_LANGUAGES,
        source_language: str | None = None,
        target_language: str | None = None,
        vocabulary_size: int | None = None,
        name: str = "m2m_100_tokenizer",
    ) -> None:
        super().__init__(name=name)
        file = Path(path, _VOCABULARY_FILE)
        self._model, self._tokenizer = open_model(Path(path, _MODEL_FILE))
        tokens = read_tokens(file)
        if tuple(tokens[: len(_FIRST_TOKENS)]) != _FIRST_TOKENS:
            raise ValueError(
                f"{file}: the first tokens are {tokens[: len(_FIRST_TOKENS)]}, but M2M-100 needs "
                f"{list(_FIRST_TOKENS)}: use the model's own vocabulary"
            )
        self._num_known = len(tokens)
        ids = {code: len(tokens) + place for place, code in enumerate(languages)}
        self._set_languages(ids, source_language, target_language)
        self.num_tokens = len(tokens) + len(ids)
        self.vocabulary_size = checked_size(
            path, self.num_tokens, vocabulary_size or self.num_tokens
        )
        unused = [f"<unused_{number}>" for number in range(self.num_tokens, self.vocabulary_size)]
        self.vocabulary = [*tokens, *(f"__{code}__" for code in ids), *unused]
        of_pieces = {token: number for number, token in enumerate(tokens)}
        pieces = self._tokenizer().id_to_string(tf.range(self._tokenizer().size)).numpy()
        self._ids = tf.constant(
            [of_pieces.get(piece.decode("utf-8", "replace"), 3) for piece in pieces]
        )

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return tf.ragged.map_flat_values(
            lambda pieces: tf.gather(self._ids, pieces), self._tokenizer().tokenize(text)
        )

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts.

        Special tokens and languages are left out. The unknown token becomes " ⁇ ".

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.pad_token_id)
        return row_by_row(self._texts, tf.cast(token_ids, tf.int32))

    def _texts(self, token_ids: tf.Tensor) -> tf.Tensor:
        pieces = tf.where(token_ids == self.unknown_token_id, " ⁇ ", self.tokens(token_ids))
        is_text = (token_ids >= self.unknown_token_id) & (token_ids < self._num_known)
        text = tf.strings.reduce_join(tf.where(is_text, pieces, ""), axis=1)
        return tf.strings.strip(tf.strings.regex_replace(text, "▁", " "))

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        return tf.gather(tf.constant(self.vocabulary), token_ids)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the vocabulary and the SentencePiece model to a folder, for `load`."""
        tokens = self.vocabulary[: self._num_known]
        write_json(
            Path(folder, _VOCABULARY_FILE), {token: number for number, token in enumerate(tokens)}
        )
        with replaced(Path(folder, _MODEL_FILE)) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        return cls(folder, **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {
            "languages": list(self.languages),
            "vocabulary_size": self.vocabulary_size,
            **self._language_config(),
        }
