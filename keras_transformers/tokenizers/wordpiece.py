"""WordPiece, BERT's tokenization: the same in Python, in tf.data and in a SavedModel."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import tensorflow as tf

from keras_transformers.files import check_new
from keras_transformers.tokenizers import offsets, packing
from keras_transformers.tokenizers import vocabulary as vocabularies
from keras_transformers.tokenizers.described.parts import Parts
from keras_transformers.tokenizers.learned_size import log_size
from keras_transformers.tokenizers.tensors import Texts, texts_of
from keras_transformers.tokenizers.text_ops.forms import word_pieces
from keras_transformers.tokenizers.vocabulary import WordPieceMerges

__all__ = ["WordPieceTokenizer"]

VOCABULARY_FILE = "vocab.txt"


class WordPieceTokenizer(packing.BertPacking, tf.Module):
    r"""Splits words into word pieces, longest match first (Devlin et al. 2018, arXiv:1810.04805).

    Token ids equal those of Hugging Face's BertTokenizer with `split_special_tokens=True`, except
    for a few combining characters (see `bert_characters`). All methods except `train` run in the
    graph; see `text_ops` for the ops.

    Unusual text:
      - Spaces, tabs, line ends and other white space end a word, and have no tokens.
      - Control, zero-width and private use characters, soft hyphens, U+FFFD, NUL and invalid UTF-8
        are dropped: b"a\xffb" is "ab".
      - Each punctuation mark and each Chinese character is a word.
      - A word with a character unknown to the vocabulary, or of more than 100 characters, is one
        unknown token.
      - A special token's name in a text, such as "[SEP]", is ordinary text.
      - Empty or blank text has no tokens.

    The special tokens are BERT's. For other models, a subclass sets `special_names`.

    Args:
        vocabulary: a file with one token per line, or the tokens, in the order of their ids; tokens
            that continue a word start with "##". `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and
            `[MASK]` must be included.
        lowercase: lower-case texts and strip accents, as the uncased models do.
        parts: the `normalizer`, `pre_tokenizer` and `added_tokens` of a tokenizer.json, to use
            instead of BERT's (see `described.Parts`); `lowercase` then only describes them. The
            added tokens' names in a text are these tokens.
        name: name of the module.

    Attributes:
        special_names: purpose -> special token. All must be in the vocabulary.
        vocabulary_size: the number of tokens.
        lowercase: whether texts are lower-cased.
        pad_token_id: id of [PAD].
        unknown_token_id: id of [UNK].
        cls_token_id: id of [CLS].
        sep_token_id: id of [SEP].
        mask_token: "[MASK]".
        mask_token_id: id of [MASK].

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, a token is empty or repeated (the message names file and
            line), or a special token is missing.

    Example:
        >>> tokenizer = WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> packed = tokenizer(["Good films!", "film"], max_sequence_length=16)
        >>> packed["token_ids"].numpy().tolist()
        [[2, 5, 6, 7, 8, 3], [2, 6, 3, 0, 0, 0]]
    """

    special_names: ClassVar[Mapping[str, str]] = {
        "pad": vocabularies.PAD,
        "unknown": vocabularies.UNKNOWN,
        "cls": vocabularies.CLS,
        "sep": vocabularies.SEP,
        "mask": vocabularies.MASK,
    }

    def __init__(
        self,
        vocabulary: str | os.PathLike[str] | Sequence[str],
        *,
        lowercase: bool = True,
        parts: Mapping[str, Any] | None = None,
        name: str = "word_piece_tokenizer",
    ) -> None:
        super().__init__(name=name)
        special = list(self.special_names.values())
        if isinstance(vocabulary, str | os.PathLike):
            where = os.fspath(vocabulary)
            tokens = vocabularies.read(vocabulary, special_tokens=special)
        else:
            where, tokens = "vocabulary", vocabularies.check(vocabulary, special_tokens=special)
        ids = {token: token_id for token_id, token in enumerate(tokens)}
        self.lowercase = lowercase
        self.parts = (
            None if parts is None else Parts(parts, num_tokens=len(tokens), byte_level=False)
        )
        added = [] if self.parts is None else self.parts.added
        self.vocabulary_size = len(tokens) + len(added)
        self.pad_token_id = ids[self.special_names["pad"]]
        self.unknown_token_id = ids[self.special_names["unknown"]]
        self.cls_token_id = ids[self.special_names["cls"]]
        self.sep_token_id = ids[self.special_names["sep"]]
        self.mask_token = self.special_names["mask"]
        self.mask_token_id = ids[self.mask_token]
        with tf.device("CPU:0"):  # where strings live, and the ops that read these tables
            # A tensor, because tf.Module would repeatedly search a list for variables.
            self._tokens = tf.constant([*tokens, *added])
            self._num_saved = len(tokens)
        self._pieces = word_pieces(
            tokens,
            unknown_token=self.special_names["unknown"],
            lowercase=lowercase if parts is None else None,
        )
        try:
            self._pieces()
        except ValueError as error:  # no words, a token of more than 256 bytes, ...
            raise ValueError(f"{where}: {error}") from error

    @classmethod
    def train(
        cls,
        files: Sequence[str | os.PathLike[str]],
        path: str | os.PathLike[str],
        *,
        vocabulary_size: int = 30522,
        merges: WordPieceMerges = "frequency",
        lowercase: bool = True,
        min_frequency: int = 2,
        max_characters: int | None = None,
    ) -> Self:
        """Learns a vocabulary from text and writes it to a file, atomically.

        The same lines give the same file.

        Args:
            files: UTF-8 text, plain or compressed. Each file is read twice.
            path: the vocabulary to write, usually `vocab.txt`: the special tokens, the single
                characters, then the word pieces in the order learned.
            vocabulary_size: number of tokens; fewer, with a warning, if no more pieces occur
                `min_frequency` times.
            merges: which two adjacent pieces become the next token: "likelihood", those with the
                highest count(ab) / (count(a) count(b)), which is WordPiece's definition (Schuster &
                Nakajima 2012); "frequency", those with the highest count(ab), as in byte-pair
                encoding.
            lowercase: see `WordPieceTokenizer`.
            min_frequency: how often two adjacent pieces must occur to be merged.
            max_characters: how many of the most frequent characters get tokens; words with other
                characters are unknown. None: 1,000, or as many as make up 99.95 % of the text,
                which are more in Chinese, Japanese and Korean.

        Returns:
            The tokenizer of the new file.

        Raises:
            FileExistsError: `path` exists.
            FileNotFoundError: one of the files or the folder of `path` does not exist.
            ValueError: there are no such `merges`; or the text is empty, not UTF-8 (the message
                names file and line), or has too many different characters for `vocabulary_size`.
        """
        check_new(path)
        tokens = vocabularies.learn(
            files,
            vocabulary_size=vocabulary_size,
            merges=merges,
            lowercase=lowercase,
            min_frequency=min_frequency,
            max_characters=max_characters,
            first_tokens=list(cls.special_names.values()),
            unknown_token=cls.special_names["unknown"],
        )
        vocabularies.write(tokens, path)
        log_size(path, len(tokens), vocabulary_size)
        return cls(path, lowercase=lowercase)

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts texts to token ids, without [CLS] and [SEP].

        Args:
            text: strings (batch,).

        Returns:
            int32 (batch, None).
        """
        if self.parts is not None:
            return self.parts.tokenize(texts_of(text), self._pieces().encode)[0]
        return self._pieces().tokenize(texts_of(text))

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids, and finds the span of each token in the original text.

        The ids are those of `tokenize`. A token's span is the bytes of the characters that it comes
        from, with their accents. Deleted characters (accents, zero-width and control characters,
        invalid UTF-8) belong to the character before them; at the start of a text, they belong to
        no token. White space belongs to no token. If one character becomes several tokens (Hangul
        with `lowercase`), each has the span of the whole character. `offsets.to_characters`
        converts byte offsets to character offsets.

        Args:
            text: strings (batch,).

        Returns:
            Token ids, starts and ends (exclusive), each int32 (batch, None).
        """
        text = texts_of(text)
        if self.parts is not None:
            ids, starts, ends = self.parts.tokenize(text, self._pieces().encode)
            return ids, *offsets.within_texts(text, ids.value_rowids(), starts, ends)
        return self._pieces().tokenize_with_offsets(text)

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts token ids to readable texts.

        White space, deleted characters and, with `lowercase`, case and accents are lost. Pieces of
        words are joined; words and punctuation marks are separated by spaces. [PAD], [CLS] and
        [SEP] are left out; unknown words become "[UNK]".

        Args:
            token_ids: int32 (batch, length), ragged or padded.

        Returns:
            Strings (batch,).

        Raises:
            tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        if not isinstance(token_ids, tf.RaggedTensor):
            token_ids = tf.RaggedTensor.from_tensor(token_ids)
        is_added = [
            token_ids.values == added
            for added in (self.pad_token_id, self.cls_token_id, self.sep_token_id)
        ]
        is_text = token_ids.with_values(~tf.reduce_any(is_added, axis=0))
        tokens = tf.gather(self._tokens, tf.ragged.boolean_mask(token_ids, is_text))
        text = tf.strings.reduce_join(tokens, axis=-1, separator=" ")
        return tf.strings.regex_replace(text, " ##", "")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the vocabulary to `vocab.txt` in a folder, for `load`."""
        vocabularies.write(
            self.vocabulary[: self._num_saved], os.path.join(folder, VOCABULARY_FILE)
        )

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        return cls(os.path.join(folder, VOCABULARY_FILE), **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        parts = {} if self.parts is None else {"parts": self.parts.description}
        return {"lowercase": self.lowercase, **parts}

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape."""
        with tf.device("CPU:0"):
            return tf.gather(self._tokens, token_ids)

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self._tokens.numpy()]
