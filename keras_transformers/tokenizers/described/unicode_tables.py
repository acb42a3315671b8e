"""Tabulates Unicode as the `tokenizers` library knows it, by querying every character once.

Python's `unicodedata` and TensorFlow's ops are built with other versions of Unicode.
"""

import functools
import json
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from keras_transformers.tokenizers.described.text import CODES

# Nothing combines with them. NFKC makes "|" of other characters, BERT deletes the second.
_SEPARATOR, _OTHER_SEPARATOR = "|", "\ue000"
_LARGEST_CLASS = "\u0345"  # the combining mark of the largest class, 240


# Runs of characters of one kind, unassigned or for private use: the first represents all.
_ALIKE = (
    *(range(0x32400, 0xE0000), range(0xE1000, 0xF0000)),
    *(range(0xF0000, 0xFFFFE), range(0xFFFFE, 0x100000)),
    *(range(0x100000, 0x10FFFE), range(0x10FFFE, CODES)),
)


@functools.cache
def _surveyed() -> list[str]:
    codes = [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE1000)]
    return [chr(code) for code in [*codes, *(run[0] for run in _ALIKE)]]


def _members(of: str) -> np.ndarray:
    """Returns which characters are in a string of surveyed ones: bool (CODES,)."""
    members = np.zeros(CODES, bool)
    members[[ord(character) for character in of]] = True
    for run in _ALIKE:
        members[run.start : run.stop] = members[run.start]
    return members


@functools.cache
def class_of(pattern: str) -> np.ndarray:
    r"""Returns which characters a regular expression such as `\p{L}` matches: bool (CODES,).

    Raises:
        ValueError: it is not an expression.
    """
    try:
        delete = normalizers.Replace(Regex(pattern), "")
    except Exception as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    members = ~_members(delete.normalize_str("".join(_surveyed())))
    members[0xD800:0xE000] = False  # no characters
    return members


def word_characters() -> np.ndarray:
    r"""Returns the characters in Rust's `\w`, which differs from Oniguruma's: bool (CODES,)."""
    return class_of(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]")


@functools.cache
def kept_by(pre_tokenizer: str) -> np.ndarray:
    """Returns which characters survive a pre-tokenizer that removes others: bool (CODES,)."""
    words = _pre_tokenizer(pre_tokenizer).pre_tokenize_str("".join(_surveyed()))
    return _members("".join(word for word, _ in words))


@functools.cache
def isolated_by(pre_tokenizer: str) -> np.ndarray:
    """Returns which characters a pre-tokenizer splits off as single words: bool (CODES,).

    It must not split anything else.
    """
    words = _pre_tokenizer(pre_tokenizer).pre_tokenize_str("a" + "a".join(_surveyed()) + "a")
    return _members("".join(word for word, _ in words if len(word) == 1 and word != "a"))


def _pre_tokenizer(description: str) -> pre_tokenizers.PreTokenizer:
    kind = json.loads(description)
    return getattr(pre_tokenizers, kind.pop("type"))(**kind)


@functools.cache
def character_table(normalizer: str) -> dict[int, tuple[int, ...]]:
    """Returns the single characters that a normalizer, given as JSON, changes, and the results."""
    normalize = normalizer_of(normalizer)
    unchanged = normalize(_OTHER_SEPARATOR) == _OTHER_SEPARATOR
    separator = _OTHER_SEPARATOR if unchanged else _SEPARATOR
    characters = [c for c in _surveyed() if c != separator]
    normalized = normalize(separator.join(characters)).split(separator)
    table = {
        ord(character): tuple(map(ord, normal))
        for character, normal in zip(characters, normalized, strict=True)
        if character != normal
    }
    for run in _ALIKE:
        if run.start in table:
            table.update(dict.fromkeys(run, table[run.start]))
    return table


def normalizer_of(description: str) -> Callable[[str], str]:
    """Returns the function of a normalizer of `tokenizers`, given as JSON."""
    empty = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": json.loads(description),
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]",
                  "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    }  # fmt: skip
    normalizer: Any = Tokenizer.from_str(json.dumps(empty)).normalizer
    return str if normalizer is None else normalizer.normalize_str


@functools.cache
def combining_classes() -> dict[int, int]:
    """Returns the canonical combining classes other than 0, by code point."""
    classes = {ord(c): unicodedata.combining(c) for c in _surveyed()}
    classes = {code: number for code, number in classes.items() if number}
    normalize = normalizers.NFD().normalize_str
    # Marks newer than the library's Unicode do not move.
    marks = [chr(code) for code, number in classes.items() if number < classes[ord(_LARGEST_CLASS)]]
    pairs = normalize(_SEPARATOR.join(_LARGEST_CLASS + mark for mark in marks)).split(_SEPARATOR)
    for mark, pair in zip(marks, pairs, strict=True):
        if pair == _LARGEST_CLASS + mark:
            del classes[ord(mark)]
    # Marks newer than Python's Unicode: each moves before marks of larger classes.
    new = [c for c in _surveyed() if unicodedata.category(c) == "Cn"]
    pairs = normalize(_SEPARATOR.join(_LARGEST_CLASS + mark for mark in new)).split(_SEPARATOR)
    examples = {number: chr(code) for code, number in sorted(classes.items(), reverse=True)}
    for mark, pair in zip(new, pairs, strict=True):
        if pair != _LARGEST_CLASS + mark and pair.endswith(_LARGEST_CLASS) and len(pair) == 2:
            larger = [n for n, other in examples.items() if normalize(other + mark) != other + mark]
            smaller = [number for number in examples if number not in larger]
            classes[ord(mark)] = max(smaller)
    return classes


@functools.cache
def compositions() -> dict[tuple[int, int], int]:
    """Returns (first, second) -> the character that NFC makes of both."""
    whole, parts = normalizers.NFC().normalize_str, character_table('{"type": "NFD"}')
    composed = character_table('{"type": "NFC"}')
    pairs = {}
    for code, decomposed in parts.items():
        if code in composed or len(decomposed) < 2:  # NFC never makes it
            continue
        first = whole("".join(map(chr, decomposed[:-1])))
        if len(first) == 1 and whole(first + chr(decomposed[-1])) == chr(code):
            pairs[ord(first), decomposed[-1]] = code
    return pairs
