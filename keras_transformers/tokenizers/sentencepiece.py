"""Sub-word tokens by byte-pair encoding, the same in Python, in tf.data and in a SavedModel."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import sentencepiece
import tensorflow as tf
import tensorflow_text

from keras_transformers.files import check_new, read_lines, replaced
from keras_transformers.private_api import name_sentencepiece_model
from keras_transformers.tokenizers.tensors import row_by_row, texts_of, with_ends

__all__ = ["SentencePieceTokenizer"]

Normalization = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]

_SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")


MODEL_FILE = "vocabulary.model"


class SentencePieceTokenizer(tf.Module):
    r"""Byte-pair encoding with byte fallback (Sennrich et al. 2016; Kudo and Richardson 2018).

    One vocabulary may serve several languages. Characters outside it are spelled as UTF-8 bytes, so
    that every text has tokens and the unknown token does not occur. All methods except `train` run
    in the graph.

    Unusual text, with the normalization "nmt_nfkc":
      - Runs of spaces, tabs and line ends become one space, and are dropped at either end: "a  b"
        comes back as "a b".
      - Zero-width spaces become spaces; other control characters (U+0001 to U+001F, U+007F) are
        dropped.
      - NUL is kept, as the byte token <0x00>.
      - Each byte that is not UTF-8 becomes U+FFFD, the replacement character.
      - Compatibility characters become their equivalents: "ﬁ" becomes "fi" (NFKC).
      - The names of special tokens in a text, such as "</s>", are ordinary text.
      - A text that is empty or only white space has no tokens; no tokens make an empty text.

    Args:
        path: a model that `train` wrote.
        name: of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        pad_token_id: 0.
        unknown_token_id: 1.
        start_token_id: 2.
        end_token_id: 3.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a SentencePiece model, or has other special tokens or no byte
            fallback.
    """

    pad_token_id = 0
    unknown_token_id = 1
    start_token_id = 2
    end_token_id = 3

    def __init__(
        self, path: str | os.PathLike[str], *, name: str = "sentence_piece_tokenizer"
    ) -> None:
        super().__init__(name=name)
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; check the path")
        # FastSentencepieceTokenizer is faster, but misreads byte-pair models.
        self._model = path.read_bytes()
        try:
            self._tokenizer = _tokenizer(self._model)
            self.vocabulary_size = int(self._tokenizer.vocab_size())
        except tf.errors.OpError as error:
            raise ValueError(f"{path}: not a SentencePiece model") from error
        self._check(path)

    @classmethod
    def train(
        cls,
        files: Iterable[str | os.PathLike[str]],
        path: str | os.PathLike[str],
        *,
        vocabulary_size: int = 8000,
        character_coverage: float = 0.9995,
        normalization: Normalization = "nmt_nfkc",
    ) -> "SentencePieceTokenizer":
        """Learns a vocabulary from text and writes it to a file, whole or not at all.

        The same lines give the same file, whatever the names of their files.

        Args:
            files: UTF-8 text, one sentence per line, unpacked if the name ends in `.gz`. Give all
                languages that share the vocabulary. Empty lines are skipped.
            path: the model to write, usually `*.model`.
            vocabulary_size: the number of tokens, with the 4 special ones and 256 bytes.
            character_coverage: the share of the text's characters, from 0.98 to 1, that get tokens;
                the rarest ones are spelled as bytes.
            normalization: SentencePiece's name of the normalization: Unicode NFKC, with "nmt_" also
                of spaces and control characters, with "_cf" to lower case; "identity" keeps the
                characters. Runs of spaces always become one.

        Returns:
            The tokenizer of the new file.

        Raises:
            FileExistsError: `path` exists.
            FileNotFoundError: one of the files does not, or the folder of `path`.
            ValueError: the text is empty, not UTF-8 (the message names file and line), or has too
                few or too many different characters and words for `vocabulary_size`.
        """
        sources, path = [Path(file) for file in files], check_new(path)
        lines = (line for source in sources for line in read_lines(source) if line)
        try:
            with replaced(path) as scratch, scratch.open("wb") as writer:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=lines,
                    model_writer=writer,
                    model_type="bpe",
                    byte_fallback=True,
                    vocab_size=vocabulary_size,
                    character_coverage=character_coverage,
                    normalization_rule_name=normalization,
                    pad_id=cls.pad_token_id,
                    unk_id=cls.unknown_token_id,
                    bos_id=cls.start_token_id,
                    eos_id=cls.end_token_id,
                    max_sentence_length=2**30,  # the default skips lines above 4,192 bytes
                    minloglevel=2,
                )
        except RuntimeError as error:
            raise ValueError(_explain(error, sources, vocabulary_size)) from error
        return cls(path)

    def tokenize(
        self, text: Any, *, add_start: bool = False, add_end: bool = False
    ) -> tf.RaggedTensor:
        """Texts to token ids.

        Args:
            text: strings (batch,).
            add_start: put the start token before each row.
            add_end: put the end token after each row.

        Returns:
            int32 (batch, None).
        """
        return with_ends(
            self._tokenizer.tokenize(texts_of(text)),
            start_token_id=self.start_token_id if add_start else None,
            end_token_id=self.end_token_id if add_end else None,
        )

    def detokenize(self, token_ids: Any) -> tf.Tensor:
        """Token ids to texts.

        Padding, start and end tokens are left out, the unknown token becomes " ⁇ ", and bytes that
        are not UTF-8 together become U+FFFD.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).

        Raises:
            tf.errors.OutOfRangeError: an id is outside the vocabulary.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            return self._tokenizer.detokenize(tf.cast(token_ids, tf.int32))
        return row_by_row(self._tokenizer.detokenize, tf.cast(token_ids, tf.int32))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to `vocabulary.model` in a folder, for `load`."""
        with replaced(Path(folder, MODEL_FILE)) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """The tokenizer that `save` and `config` came from."""
        return cls(Path(folder, MODEL_FILE), **config)

    def config(self) -> dict[str, Any]:
        """The arguments that make this tokenizer again, without the vocabulary, as JSON values."""
        return {}

    def tokens(self, token_ids: Any) -> tf.Tensor:
        """The names of token ids, of any shape, as in the vocabulary; "▁" is a space."""
        return self._tokenizer.id_to_string(tf.cast(token_ids, tf.int32))

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id. Not in the graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def _check(self, path: Path) -> None:
        found = self.vocabulary
        if tuple(found[:4]) != _SPECIAL_TOKENS:
            raise ValueError(
                f"{path}: the first tokens are {found[:4]}, must be {list(_SPECIAL_TOKENS)}: train "
                "the model with SentencePieceTokenizer.train"
            )
        if found[4:260] != [f"<0x{byte:02X}>" for byte in range(256)]:
            raise ValueError(
                f"{path}: a model without byte fallback, which does not know rare characters: "
                "train the model with SentencePieceTokenizer.train"
            )


def _tokenizer(model: bytes) -> tensorflow_text.SentencepieceTokenizer:
    """tensorflow-text's tokenizer; tokenizers with the same model share it."""
    tokenizer = tensorflow_text.SentencepieceTokenizer(model, out_type=tf.int32)
    name = f"sentencepiece-{hashlib.sha256(model).hexdigest()}"
    name_sentencepiece_model(tokenizer, model, name)
    return tokenizer


def _explain(error: RuntimeError, sources: Sequence[Path], vocabulary_size: int) -> str:
    """Turns an error of SentencePiece's trainer into one that names the files."""
    text, where = str(error), ", ".join(map(str, sources)) or "no files"
    if "sentences_.empty()" in text:
        return f"{where}: no text to learn a vocabulary from"
    if limit := re.search(r"value <= (\d+)", text):
        return (
            f"{where}: too little text for vocabulary_size={vocabulary_size}; it gives at most "
            f"{limit[1]} tokens"
        )
    if limit := re.search(r"required_chars\. \d+ vs (\d+)", text):
        return (
            f"{where}: vocabulary_size={vocabulary_size} is too small: the special tokens, bytes "
            f"and single characters of this text are {limit[1]}"
        )
    return f"{where}: SentencePiece failed: {text}"
