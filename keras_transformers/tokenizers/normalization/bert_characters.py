"""Holds BERT's character normalization as tables, for tensorflow_text's op and for core ops.

The op FastBertNormalize replaces characters one by one according to a table. The table in
tensorflow_text is not BERT's: it folds compatibility characters ("²" becomes "2", "™" becomes "tm",
"ß" becomes "ss") and turns control characters into spaces, while BERT deletes them. The tables here
map each character as `tokenizers.normalizers.BertNormalizer` does. Training, serving and Hugging
Face therefore agree by construction, and the op is as fast as before. Computing what each character
becomes takes a second, so bert_characters.npz holds it; `make_bert_characters` writes that file.

There are three additions to the table for tensorflow_text:

- Non-ASCII punctuation gets spaces around it, so that words end there with any version of Unicode
  that the ops were built with.
- Characters that end words in tensorflow_text but not in BERT (punctuation newer than the Unicode
  of `tokenizers`, 256 Chinese characters) become stand-ins from a private use area. BERT deletes
  that area's characters from texts, so nothing else becomes a stand-in.
- Invalid UTF-8 is deleted, because BERT deletes the U+FFFD that decoders put in its place.

One difference remains, because a character table ignores neighbours: with `lowercase`, BERT puts
combining characters into canonical order. It then deletes nearly all of them, but 83 spacing or
recent ones (in musical notation, Glagolitic, Javanese, ...) stay, and two of these in a row may
keep their original order.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from tokenizers import normalizers, pre_tokenizers

from keras_transformers.dependencies.text_library import tensorflow_text
from keras_transformers.tokenizers.described.text import CODES
from keras_transformers.tokenizers.normalization.double_array import double_array

# Each character in these ranges is a word. They are those of tokenizers.BertNormalizer, whose sixth
# range starts at U+2B920; in Google's BERT it starts at U+2B820.
CHINESE = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)

# BERT keeps all other characters except those for private use, which it deletes.
_SURVEYED = (
    range(0x1, 0xD800),
    range(0xE000, 0x20000),
    range(0x2B820, 0x2B920),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE1000),
)
_PRIVATE_USE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
_FIRST_STAND_IN = 0xF0000

# The layout of an entry. The table is a flatbuffer with four fields; see
# fast_bert_normalizer.h and fast_bert_normalizer_model.fbs in github.com/tensorflow/text.
_REPLACED = 1 << 30
_LENGTH_BITS = 6


FILE = Path(__file__).with_name("bert_characters.npz")


@functools.cache
def normalizer_model(*, lowercase: bool) -> bytes:
    """Returns the table for tensorflow_text.FastBertNormalizer: a flatbuffer of at most 300 kB.

    Args:
        lowercase: also lower-case the text and strip accents, as the uncased BERT models do.
    """
    with np.load(FILE, allow_pickle=False) as tables:
        table: bytes = tables["uncased" if lowercase else "cased"].tobytes()
    return table


def tables() -> dict[str, np.ndarray]:
    """Computes what bert_characters.npz holds, with the installed `tokenizers`.

    Returns:
        "cased" and "uncased", the tables as bytes; "stand_ins", the characters that have one.
    """
    stand_ins = np.array(list(_stand_ins()), np.uint32)
    cased, uncased = (
        np.frombuffer(_normalizer_model(lowercase), np.uint8) for lowercase in (False, True)
    )
    return {"cased": cased, "uncased": uncased, "stand_ins": stand_ins}


def _normalizer_model(lowercase: bool) -> bytes:
    pool = bytearray()
    offsets: dict[bytes, int] = {}
    entries = {}
    for key, replacement in _replacements(lowercase):
        assert len(replacement) < 1 << _LENGTH_BITS, (key, replacement)
        if replacement not in offsets:
            offsets[replacement] = len(pool)
            pool += replacement
        entries[key] = _REPLACED | offsets[replacement] << _LENGTH_BITS | len(replacement)
    builder = flatbuffers.Builder()
    trie = builder.CreateNumpyVector(double_array(entries))
    strings = builder.CreateByteVector(bytes(pool))
    builder.StartObject(4)
    builder.PrependBoolSlot(0, lowercase, False)
    builder.PrependUOffsetTRelativeSlot(1, trie, 0)
    builder.PrependInt32Slot(2, _REPLACED, 0)  # U+0000 is deleted; a trie cannot store it
    builder.PrependUOffsetTRelativeSlot(3, strings, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


@functools.cache
def character_table(*, lowercase: bool) -> dict[int, tuple[int, ...]]:
    """Returns character -> what BERT makes of it, for characters that it changes or deletes.

    Those in `deleted` are left out; "lowercase" is as for `normalizer_model`.
    """
    table = _normalized(lowercase=lowercase)
    return {0: ()} | {
        ord(character): tuple(map(ord, normal.strip(" ") or normal))
        for character, normal in table.items()
        if normal not in (character, f" {character} ")
    }


def deleted() -> np.ndarray:
    """Returns the characters for private use in the last two planes, which BERT deletes."""
    return _members(itertools.chain(*_PRIVATE_USE))


def single_words() -> np.ndarray:
    """Returns the characters that are words of their own, bool (CODES,)."""
    low, high = CHINESE[::3], CHINESE[2::3]
    ranges = [range(ord(a), ord(b) + 1) for a, b in zip(low, high, strict=True)]
    return _members(itertools.chain(map(ord, _punctuation()), *ranges))


def _members(codes: Iterable[int]) -> np.ndarray:
    members = np.zeros(CODES, bool)
    members[list(codes)] = True
    return members


def respell(token: str) -> str:
    """Spells a vocabulary token with the table's stand-ins, as in normalized text.

    Characters and stand-ins are swapped, so different tokens stay different. A token that BERT can
    never match, because it contains a space or a private use character, still never matches.
    """
    if token.isascii() and " " not in token:  # most of them, and nothing would change
        return token
    return token.translate(_respelling())


@functools.cache
def _respelling() -> dict[int, int]:
    with np.load(FILE, allow_pickle=False) as tables:
        characters = [*tables["stand_ins"].tolist(), ord(" ")]
    table = dict(zip(characters, itertools.count(_FIRST_STAND_IN), strict=False))
    return table | {stand_in: character for character, stand_in in table.items()}


@functools.cache
def _stand_ins() -> dict[int, int]:
    """Maps characters that end words in tensorflow_text but not in BERT to stand-ins."""
    normal = _normalized(lowercase=False)
    kept = [character for character in _surveyed() if normal[character] == character]
    text: Any = tensorflow_text()
    wordpiece = text.FastWordpieceTokenizer(["[UNK]", "q"])
    num_words = wordpiece.tokenize([f"q{character}q" for character in kept]).row_lengths().numpy()
    splitting = {kept[i] for i in np.flatnonzero(num_words > 1)}
    unlike_bert = sorted(splitting - _punctuation() - {" "})
    return dict(zip(map(ord, unlike_bert), itertools.count(_FIRST_STAND_IN), strict=False))


@functools.cache
def _surveyed() -> list[str]:
    return [chr(code) for code in itertools.chain(*_SURVEYED)]


@functools.cache
def _punctuation() -> frozenset[str]:
    """Returns the characters that are words in BERT, except the Chinese ones."""
    text = "q" + "q".join(_surveyed()) + "q"
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
    return frozenset(word for word, _ in words if "q" not in word)


def _normalized(*, lowercase: bool) -> dict[str, str]:
    """Maps each surveyed character to its normalization in `tokenizers`."""
    # One call, because calls are slow. Nothing else becomes "|", and nothing combines with it.
    characters = [character for character in _surveyed() if character != "|"]
    bert = normalizers.BertNormalizer(lowercase=lowercase)
    texts = bert.normalize_str("|".join(characters)).split("|")
    return {"|": "|"} | dict(zip(characters, texts, strict=True))


def _replacements(lowercase: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yields each character that changes, and all invalid UTF-8, with its replacement."""
    table: dict[int, int | str] = {**_stand_ins()}
    table |= {ord(mark): f" {mark} " for mark in _punctuation() if not mark.isascii()}
    for character, normal in _normalized(lowercase=lowercase).items():
        if normal == f" {character} ":
            continue  # Chinese: tensorflow_text ends words there anyway
        normal = normal.translate(table)
        if normal != character:
            yield character.encode(), normal.encode()
    for code in itertools.chain(*_PRIVATE_USE):
        yield chr(code).encode(), b""
    for unit in _invalid_utf8():
        yield unit, b""


def _invalid_utf8() -> Iterator[bytes]:
    """Yields invalid UTF-8 as the op sees it: single bytes and truncated characters."""
    yield from (bytes([byte]) for byte in range(0x80, 0x100))
    yield from dict.fromkeys(
        chr(code).encode()[:length]
        for code in range(0x800, 0x110000, 64)  # 64 characters differ only in their last byte
        if not 0xD800 <= code < 0xE000
        for length in range(2, len(chr(code).encode()))
    )
