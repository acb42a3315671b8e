"""Byte-pair encoding with SentencePiece, the same in Python, in tf.data and in a SavedModel."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import sentencepiece
import tensorflow as tf

from keras_transformers.files import check_new, read_lines, replaced
from keras_transformers.tokenizers.learned_size import log_size
from keras_transformers.tokenizers.targets import Targets
from keras_transformers.tokenizers.tensors import row_by_row
from keras_transformers.tokenizers.text_ops.forms import Forms, SentencePieces, sentence_pieces

__all__ = ["SentencePieceTokenizer"]

Normalization = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]

_SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")

MODEL_FILE = "vocabulary.model"


class SentencePieceTokenizer(Targets, tf.Module):
    r"""Byte-pair encoding with byte fallback (Sennrich et al. 2016; Kudo and Richardson 2018).

    Several languages can share a vocabulary. Characters outside it are written as UTF-8 bytes, so
    every text has tokens and the unknown token never occurs. All methods except `train` run in the
    graph.

    Unusual text, with the normalization "nmt_nfkc":
      - Runs of spaces, tabs and line ends become one space, or nothing at either end of the text:
        "a  b" comes back as "a b".
      - Zero-width spaces become spaces; other control characters (U+0001 to U+001F, U+007F) are
        dropped.
      - NUL is kept as the byte token <0x00>.
      - Each invalid byte becomes U+FFFD, the replacement character.
      - Compatibility characters become their equivalents: "ﬁ" becomes "fi" (NFKC).
      - A special token's name in a text, such as "</s>", is ordinary text.
      - Empty or blank text has no tokens, and no tokens give empty text.

    Args:
        path: a model written by `train`.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        pad_token_id: 0.
        unknown_token_id: 1.
        start_token_id: 2.
        end_token_id: 3.

    Raises:
        FileNotFoundError: the file does not exist.
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
        self._model, self._pieces = open_model(path)
        self.vocabulary_size = self._pieces().size
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
        """Learns a vocabulary from text and writes it to a file, atomically.

        The same lines give the same file, regardless of the names of their files.

        Args:
            files: UTF-8 text, one sentence per line, plain or compressed.
                Include every language that shares the vocabulary. Empty lines are skipped.
            path: the model to write, usually `*.model`.
            vocabulary_size: number of tokens, including the 4 special ones and 256 bytes; fewer,
                with a warning, if every word has become one token.
            character_coverage: share of the text's characters, from 0.98 to 1, that get tokens; the
                rarest ones are written as bytes.
            normalization: SentencePiece's name of the normalization. "nfkc" is Unicode NFKC; "nmt_"
                also normalizes spaces and control characters, "_cf" lower-cases; "identity" keeps
                characters. Runs of spaces always become one.

        Returns:
            The tokenizer of the new file.

        Raises:
            FileExistsError: `path` exists.
            FileNotFoundError: one of the files or the folder of `path` does not exist.
            ValueError: the text is empty, not UTF-8 (the message names file and line), or has too
                many different characters for `vocabulary_size`.
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
                    hard_vocab_limit=False,  # stop when nothing is left to merge
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
        tokenizer = cls(path)
        log_size(path, tokenizer.vocabulary_size, vocabulary_size)
        return tokenizer

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._pieces().tokenize(text)

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to texts.

        Padding, start and end tokens are left out. The unknown token becomes " ⁇ ", and byte tokens
        that do not form valid UTF-8 become U+FFFD.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...).

        Raises:
            tf.errors.OpError: an id is outside the vocabulary.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            return self._pieces().detokenize(tf.cast(token_ids, tf.int32))
        return row_by_row(self._pieces().detokenize, tf.cast(token_ids, tf.int32))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to `vocabulary.model` in a folder, for `load`."""
        with replaced(Path(folder, MODEL_FILE)) as scratch:
            scratch.write_bytes(self._model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        return cls(Path(folder, MODEL_FILE), **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {}

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        return self._pieces().id_to_string(tf.cast(token_ids, tf.int32))

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self.tokens(tf.range(self.vocabulary_size)).numpy()]

    def _check(self, path: Path) -> None:
        try:
            tokens = self.vocabulary
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not a SentencePiece model ({error})") from error
        if tuple(tokens[:4]) != _SPECIAL_TOKENS:
            raise ValueError(
                f"{path}: the first tokens are {tokens[:4]}, expected {list(_SPECIAL_TOKENS)}: "
                "train the model with SentencePieceTokenizer.train"
            )
        if tokens[4:260] != [f"<0x{byte:02X}>" for byte in range(256)]:
            raise ValueError(
                f"{path}: a model without byte fallback cannot represent rare characters: train "
                "the model with SentencePieceTokenizer.train"
            )


def open_model(path: Path) -> tuple[bytes, Forms[SentencePieces]]:
    """Reads a SentencePiece model of any kind.

    Returns:
        The file's contents, and the ops of the model.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, or needs tensorflow-text, which is missing.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    model = path.read_bytes()
    pieces = sentence_pieces(model)
    try:
        pieces()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return model, pieces


def _explain(error: RuntimeError, sources: Sequence[Path], vocabulary_size: int) -> str:
    """Turns an error from SentencePiece's trainer into one that names the files."""
    text, where = str(error), ", ".join(map(str, sources)) or "no files"
    if "sentences_.empty()" in text:
        return f"{where}: no text to learn a vocabulary from"
    if limit := re.search(r"required_chars\. \d+ vs (\d+)", text):
        return (
            f"{where}: vocabulary_size={vocabulary_size} is too small: the special tokens, bytes "
            f"and single characters of this text need {limit[1]}"
        )
    return f"{where}: SentencePiece failed: {text}"
