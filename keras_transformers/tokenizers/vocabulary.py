"""Reads, learns and writes WordPiece vocabularies: one token per line, in the order of ids."""

import collections
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from keras_transformers.files import check_new, read_lines, write_lines
from keras_transformers.tokenizers.likely_merges import CONTINUES, LikelyMerges

WordPieceMerges = Literal["likelihood", "frequency"]

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_LONGEST_TOKEN = 256  # in bytes, without "##": tensorflow_text's limit
# The most frequent characters get tokens: this many, or more if the text needs them.
_MANY_CHARACTERS = 1000
_COVERAGE = 0.9995  # share of the text, as in SentencePiece


def read(
    path: str | os.PathLike[str], *, special_tokens: Sequence[str] = SPECIAL_TOKENS
) -> list[str]:
    """Reads the tokens of a vocabulary file, in the order of their ids.

    Args:
        path: the file.
        special_tokens: tokens that must be in it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not UTF-8, a line is empty or repeats another, or a special token is
            missing; the message names the line.
    """
    return check(list(read_lines(Path(path))), path, special_tokens=special_tokens)


def check(
    tokens: Sequence[str],
    path: str | os.PathLike[str] | None = None,
    *,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
) -> list[str]:
    """Returns the tokens as a list if they are a valid vocabulary.

    Args:
        tokens: tokens in the order of their ids.
        path: the file that they come from, for error messages.
        special_tokens: tokens that must be among them.

    Raises:
        ValueError: a token is not a string, is empty or repeated, or a special token is missing.
    """
    first_index: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if not isinstance(token, str) or not token:
            raise ValueError(
                f"{_place(path, index)}: {token!r} is not a token, but every line must be one, "
                "because its number is the id: download the vocabulary again"
            )
        first = first_index.setdefault(token, index)
        if first != index:
            raise ValueError(
                f"{_place(path, index)}: token {token!r} repeats {_place(path, first)}, but a "
                "token has one id: download the vocabulary again"
            )
    missing = [token for token in special_tokens if token not in first_index]
    if missing:
        raise ValueError(
            f"{path or 'vocabulary'}: {', '.join(missing)} missing from {len(tokens)} tokens; "
            f"this vocabulary needs {', '.join(special_tokens)}"
        )
    return list(tokens)


def write(tokens: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Writes a vocabulary file, atomically; see `files.check_new` for errors."""
    write_lines(check_new(path), tokens)


def learn(
    files: Sequence[str | os.PathLike[str]],
    *,
    vocabulary_size: int,
    merges: WordPieceMerges,
    lowercase: bool,
    min_frequency: int,
    max_characters: int | None,
    first_tokens: Sequence[str] = SPECIAL_TOKENS,
    unknown_token: str = UNKNOWN,
) -> list[str]:
    """Learns tokens; the same lines give the same tokens.

    `first_tokens` get the first ids. See `WordPieceTokenizer.train` for the other arguments and for
    errors.
    """
    if merges not in get_args(WordPieceMerges):
        choices = " or ".join(map(repr, get_args(WordPieceMerges)))
        raise ValueError(f"merges={merges!r}: use {choices}")
    text = _Text(files, lowercase=lowercase)
    starts: collections.Counter[str] = collections.Counter()
    suffixes: collections.Counter[str] = collections.Counter()
    for word in text.words():
        starts[word[0]] += 1
        suffixes.update(word[1:])
    counts = starts + suffixes
    alphabet = sorted(_most_frequent(counts, max_characters))
    special_tokens = [*first_tokens, *(CONTINUES + c for c in alphabet if c in suffixes)]
    where = ", ".join(map(str, files)) or "no files"
    num_fixed = len(special_tokens) + len(alphabet)
    if not alphabet:
        raise ValueError(f"{where}: no text to learn a vocabulary from")
    if vocabulary_size < num_fixed:
        raise ValueError(
            f"{where}: vocabulary_size={vocabulary_size} is too small: the special tokens and the "
            f"{len(alphabet)} characters, at the start of words and inside, need {num_fixed}"
        )
    if merges == "likelihood":
        letters = set(alphabet)  # words with other characters are unknown to the tokenizer
        frequencies = collections.Counter(word for word in text.words() if letters.issuperset(word))
        pieces = filter(_is_usable, LikelyMerges(frequencies, min_frequency=min_frequency))
        learned = itertools.islice(pieces, vocabulary_size - num_fixed)
        return [*special_tokens, *alphabet, *learned]
    # By default the trainer numbers suffixes in hash table order and breaks ties by these numbers,
    # so each run learns a different vocabulary. It keeps numbers assigned in advance.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=special_tokens,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token=unknown_token))
    tokenizer.normalizer, tokenizer.pre_tokenizer = text.normalizer, text.splitter
    tokenizer.train_from_iterator(text.lines(), trainer)
    ids = tokenizer.get_vocab()
    return sorted(filter(_is_usable, ids), key=lambda token: ids[token])


class _Text:
    """The lines and words of files, which can be read again."""

    def __init__(self, files: Sequence[str | os.PathLike[str]], *, lowercase: bool) -> None:
        self._files = files
        self.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        self.splitter = pre_tokenizers.BertPreTokenizer()

    def lines(self) -> Iterator[str]:
        return (line for file in self._files for line in read_lines(Path(file)))

    def words(self) -> Iterator[str]:
        for line in self.lines():
            for word, _ in self.splitter.pre_tokenize_str(self.normalizer.normalize_str(line)):
                yield word


def _is_usable(token: str) -> bool:
    return len(token.removeprefix(CONTINUES).encode()) <= _LONGEST_TOKEN


def _most_frequent(counts: collections.Counter[str], number: int | None) -> list[str]:
    ordered = sorted(counts, key=lambda c: (-counts[c], c))
    if number is None:
        sums = itertools.accumulate(counts[character] for character in ordered)
        enough = _COVERAGE * counts.total()
        number = max(_MANY_CHARACTERS, 1 + sum(total < enough for total in sums))
    return ordered[:number]


def _place(path: str | os.PathLike[str] | None, index: int) -> str:
    return f"vocabulary[{index}]" if path is None else f"{path}:{index + 1}"
