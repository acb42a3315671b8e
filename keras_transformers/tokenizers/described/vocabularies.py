"""Implements the BPE models of the `tokenizers` library, from their JSON, in the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.byte_pairs.files import byte_symbols
from keras_transformers.tokenizers.byte_pairs.merging import Merges
from keras_transformers.tokenizers.described.splitters import Step
from keras_transformers.tokenizers.described.text import CODES, Text, before, byte_lengths, numbered
from keras_transformers.tokenizers.tensors import item_numbers, places, row_numbers, searchsorted

__all__: list[str] = []

SPACE_MARK = "▁"  # SentencePiece's space
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
# Field of the model -> the values that are supported here.
_FIXED: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
_HASHES = tf.int64.max  # number of fingerprints


class BytePairs:
    """A vocabulary of byte pairs: bytes, or characters with bytes for those that it lacks.

    Args:
        model: the `model` of a tokenizer.json.
        byte_level: whether its tokens are written as bytes.

    Attributes:
        tokens: the model's tokens, by id.
        steps: how to cut words where no merge reaches across, which does not change ids.

    Raises:
        ValueError: it is damaged or has options that cannot be reproduced; the message names them.
    """

    def __init__(self, model: Mapping[str, Any], *, byte_level: bool) -> None:
        self.byte_level = byte_level
        ids, merges = _read(model)
        self.tokens = sorted(ids, key=ids.__getitem__)
        for field, values in _FIXED.items():
            if model.get(field) not in values:
                raise ValueError(
                    f"model BPE with {field}={model[field]!r:.100}; only {values[0]!r} is "
                    "supported here"
                )
        symbols = byte_symbols() if byte_level else BYTE_TOKENS
        missing = [symbol for symbol in symbols if symbol not in ids]
        if byte_level and (len(missing) == 256 or (missing and model.get("unk_token") is not None)):
            raise ValueError(
                f"model BPE: its vocabulary lacks {len(missing)} of the 256 bytes, such as "
                f"{missing[0]!r}, and has unk_token={model.get('unk_token')!r:.100}; it is "
                "truncated, or not byte-level"
            )
        if not byte_level and (missing or model.get("byte_fallback") is not True):
            raise ValueError(
                f"model BPE with byte_fallback={model.get('byte_fallback')!r:.100} and "
                f"{256 - len(missing)} of the tokens <0x00> to <0xFF>; a vocabulary of characters "
                "needs byte_fallback=true and all of them"
            )
        self._merges = Merges(
            [(ids[a], ids[b], ids[a + b]) for a, b in merges], vocabulary_size=len(ids)
        )
        self._byte_ids = tf.constant([ids.get(symbol, -1) for symbol in symbols])
        characters = [] if byte_level else sorted(token for token in ids if len(token) == 1)
        self._codes = tf.constant([*map(ord, characters), CODES], tf.int32)
        self._character_ids = tf.constant([*(ids[c] for c in characters), -1], tf.int32)
        ignores = model.get("ignore_merges") is True
        self._whole = _Whole(self.tokens, byte_level) if ignores else None
        joins_bytes = any(token in _FALLBACKS for merge in merges for token in merge)
        whole = byte_level or ignores or joins_bytes
        self.steps: list[Step] = [] if whole else [_Cuts(merges)]

    def encode(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts words to token ids with their spans.

        Args:
            words: different strings (words,).

        Returns:
            Token ids int32, and starts and ends int64 in bytes of the word, each (words, None).
        """
        count = tf.size(words, tf.int64)
        if self._whole is None:
            ids, rows, starts, ends = self._encode(words)
            return _ragged(rows, count, ids, starts, ends)
        whole = self._whole(words)
        at, whole_words = places(whole < 0), places(whole >= 0)
        ids, rows, starts, ends = self._encode(tf.gather(words, at))
        lengths = tf.cast(tf.strings.length(tf.gather(words, whole_words)), tf.int64)
        rows = tf.concat([tf.gather(at, rows), whole_words], 0)
        columns = (
            (ids, tf.gather(whole, whole_words)),
            (starts, tf.zeros_like(lengths)),
            (ends, lengths),
        )
        order = tf.argsort(rows, stable=True)
        values = (tf.gather(tf.concat(column, 0), order) for column in columns)
        return _ragged(tf.gather(rows, order), count, *values)

    def _encode(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns ids, words, starts and ends of tokens, all words end to end."""
        ids, words_of, lengths, word_starts = (
            self._bytes(words) if self.byte_level else self._characters(words)
        )
        ends = tf.cumsum(lengths)  # (symbols,), in bytes of all words
        at = places(ids >= 0)
        ids, words_of, starts, ends = (
            tf.gather(column, at) for column in (ids, words_of, ends - lengths, ends)
        )
        size = tf.size(ids)
        ids, words_of, firsts = self._merges(ids, words_of)
        lasts = tf.concat([firsts, [size]], 0)[1:] - 1
        shifts = tf.gather(word_starts, words_of)
        return (
            ids,
            tf.cast(words_of, tf.int64),
            tf.gather(starts, firsts) - shifts,
            tf.gather(ends, lasts) - shifts,
        )

    def _bytes(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids of bytes, -1 for unknown ones, their words and lengths; word starts."""
        lengths = tf.strings.length(words)
        values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(values, tf.int32))
        words_of = item_numbers(lengths)
        starts = tf.cumsum(tf.cast(lengths, tf.int64), exclusive=True)
        return ids, words_of, tf.ones_like(ids, tf.int64), starts

    def _characters(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Does the same for characters; those that the vocabulary lacks become their bytes."""
        codes = tf.strings.unicode_decode(words, "UTF-8")
        place = searchsorted(self._codes, codes.values)
        in_vocabulary = tf.gather(self._codes, place) == codes.values
        size = byte_lengths(codes.values)
        count = tf.where(in_vocabulary, tf.ones_like(size), size)
        origin = item_numbers(count)  # (symbols,)
        number = tf.range(tf.size(origin, tf.int64)) - tf.gather(
            tf.cumsum(count, exclusive=True), origin
        )
        byte = utf8_byte(tf.gather(codes.values, origin), tf.gather(size, origin), number)
        is_known = tf.gather(in_vocabulary, origin)
        ids = tf.where(
            is_known,
            tf.gather(tf.gather(self._character_ids, place), origin),
            tf.gather(self._byte_ids, tf.where(is_known, 0, byte)),
        )
        starts = tf.cumsum(tf.cast(tf.strings.length(words), tf.int64), exclusive=True)
        words_of = tf.cast(tf.gather(row_numbers(codes), origin), tf.int32)
        lengths = tf.gather(tf.where(in_vocabulary, size, tf.ones_like(size)), origin)
        return ids, words_of, lengths, starts


class _Cuts:
    """Cuts text between characters that no merge joins, because merges cannot reach across.

    A SentencePiece vocabulary, which has a token for spaces within words, is applied to whole
    texts. Most of its merges end before a space, so the results are mostly words.
    """

    def __init__(self, merges: Sequence[tuple[str, str]]) -> None:
        joints = {ord(left[-1]) * CODES + ord(right[0]) for left, right in merges}
        self._joints = tf.constant([*sorted(joints), tf.int64.max], tf.int64)

    def __call__(self, text: Text) -> Text:
        codes = tf.cast(text.codes, tf.int64)
        pairs = before(codes, 0) * CODES + codes
        joined = tf.gather(self._joints, searchsorted(self._joints, pairs)) == pairs
        return text._replace(rows=numbered(text.begins() | ~joined))


class _Whole:
    """Finds words that are tokens, by fingerprints, because string tables need initialization."""

    def __init__(self, tokens: Sequence[str], byte_level: bool) -> None:
        spelled = {token: spelling(token, byte_level=byte_level) for token in tokens}
        numbers = {token: number for number, token in enumerate(tokens)}
        if byte_level:
            symbols = set(byte_symbols())
            numbers = {token: n for token, n in numbers.items() if symbols.issuperset(token)}
        else:
            spelled = {token: token.encode() for token in tokens}
        self._tokens = tf.constant([*(spelled[token] for token in numbers), b""])
        hashes = tf.strings.to_hash_bucket_fast(self._tokens[:-1], _HASHES).numpy()
        order = np.argsort(hashes)
        if len(set(hashes.tolist())) < len(hashes):
            raise ValueError("model BPE with ignore_merges: two tokens have the same fingerprint")
        self._hashes = tf.constant([*hashes[order], tf.int64.max], tf.int64)
        self._places = tf.constant([*order, len(order)], tf.int32)
        self._ids = tf.constant([*numbers.values(), -1], tf.int32)

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """Returns the id of each word that is a token, or -1."""
        place = searchsorted(self._hashes, tf.strings.to_hash_bucket_fast(words, _HASHES))
        place = tf.gather(self._places, place)
        return tf.where(tf.gather(self._tokens, place) == words, tf.gather(self._ids, place), -1)


def spelling(token: str, *, byte_level: bool) -> bytes:
    """Returns the bytes of one of the model's tokens."""
    if byte_level:
        spelled = [_BYTES.get(symbol, -1) for symbol in token]
        return token.encode() if -1 in spelled else bytes(spelled)
    if token in _FALLBACKS:
        return bytes([_FALLBACKS[token]])
    return token.replace(SPACE_MARK, " ").encode()


_BYTES = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
_FALLBACKS = {token: byte for byte, token in enumerate(BYTE_TOKENS)}


def _ragged(
    rows: tf.Tensor, count: tf.Tensor, *columns: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    ids, starts, ends = columns
    ragged = tf.RaggedTensor.from_value_rowids(ids, rows, nrows=count, validate=False)
    return ragged, ragged.with_values(starts), ragged.with_values(ends)


def utf8_byte(code: tf.Tensor, size: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns byte `number` of the UTF-8 of code points that take `size` bytes, int32."""
    shift = tf.cast(6 * (size - 1 - number), tf.int32)
    rest = tf.bitwise.right_shift(code, shift)
    lead = tf.gather(tf.constant([0, 0, 0xC0, 0xE0, 0xF0]), size)
    return tf.where(number == 0, lead | rest, 0x80 | (rest & 0x3F))


def _read(model: Mapping[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns the ids of a model's tokens, and its merges; of equal merges the last counts."""
    ids = model.get("vocab")
    if model.get("type", "BPE") != "BPE" or not isinstance(ids, dict) or not ids:
        raise ValueError(
            f"model {model.get('type')!r:.100} with a vocabulary of {type(ids).__name__}; expected "
            "BPE with tokens and ids"
        )
    if not all(type(i) is int for i in ids.values()) or "" in ids:
        raise ValueError("model BPE: an id that is not a number, or a token without text")
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(
            f"model BPE: the ids of its {len(ids)} tokens are not 0 to {len(ids) - 1}, each once"
        )
    listed = model.get("merges", [])
    if not isinstance(listed, list):
        raise ValueError(f"model BPE: merges={listed!r:.100}; expected a list of pairs")
    merges: dict[tuple[str, str], None] = {}
    for merge in listed:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair)
        ):
            raise ValueError(f"model BPE: the merge {merge!r:.100} is not a pair of tokens")
        left, right = pair
        unknown = [token for token in (left, right, left + right) if token not in ids]
        if unknown:
            raise ValueError(
                f"model BPE: the merge {merge!r:.100} needs {unknown[0]!r:.100}, which the "
                "vocabulary lacks: get the whole file"
            )
        merges.pop((left, right), None)
        merges[left, right] = None
    return ids, list(merges)
