"""Applies a SentencePiece model's normalization in the graph, and tracks origins of characters.

Its rules replace strings of characters; at each place the longest match is used. They are in a
double array, which is walked directly: see `normalization.double_array`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.described.text import (
    CODES,
    CharacterMap,
    Text,
    byte_lengths,
    encode,
    with_deleted,
)
from keras_transformers.tokenizers.described.trie import NOTHING, Trie, leftmost, row_bounds
from keras_transformers.tokenizers.normalization.double_array import double_array
from keras_transformers.tokenizers.tensors import kept, places, searchsorted

__all__ = ["Charsmap", "charsmap_of", "charsmap_rules"]

_LABEL = 1 << 31 | 0xFF  # bits of a unit: it is not a value, and its label


class Charsmap:
    """Replaces strings of characters by others.

    Halves of surrogate pairs, which are no characters, match nothing and stay.

    Args:
        charsmap: `normalizer_spec.precompiled_charsmap` of a SentencePiece model: the size of a
            double array, the array, and the replacements, each followed by a zero byte. The values
            in the array are the offsets of replacements.
        literals: strings that stay as they are, the longest one at each place, before all others.

    Raises:
        ValueError: it is damaged.
    """

    def __init__(self, charsmap: bytes, literals: Sequence[str] = ()) -> None:
        units, strings = _read(charsmap)
        self._labels = tf.constant(units & _LABEL)
        self._bases = tf.constant(_bases(units))
        self._values = tf.constant(_numbers(units, strings))
        # Numbers that no character has stand for the replacements.
        results = [*(string.decode("utf-8", "replace") for string in strings), *literals]
        self._replace = CharacterMap(
            {CODES + number: tuple(map(ord, result)) for number, result in enumerate(results)}
        )
        self._literals = Trie(literals) if literals else None
        self._num_strings = len(strings)
        spaces = [CODES + number for number, result in enumerate(results) if result == " "]
        self._spaces = tf.constant([ord(" "), *spaces], tf.int32)

    def __call__(self, text: Text) -> Text:
        """Returns the normalized text."""
        return self.replaced(self.units(text))

    def replaced(self, units: Text) -> Text:
        """Returns the normalized text of `units`."""
        return self._replace(units)

    def are_spaces(self, units: Text) -> tf.Tensor:
        """Returns whether each of `units` becomes one space and nothing else, bool (units,)."""
        return tf.reduce_any(units.codes[:, None] == self._spaces, axis=1)

    def units(self, text: Text) -> Text:
        """Returns the strings that are replaced at once, and other characters, each as one code."""
        first, row, row_end = row_bounds(text)
        # U+0000 cannot match either, and is as short in UTF-8 as the array assumes.
        is_half = (text.codes >= 0xD800) & (text.codes < 0xE000)
        string, end = self._longest(text._replace(codes=tf.where(is_half, 0, text.codes)), row_end)
        if self._literals is not None:
            literal, literal_end = self._literals.longest(text, row_end)
            is_literal = literal != NOTHING
            string = tf.where(is_literal, self._num_strings + literal, string)
            end = tf.where(is_literal, literal_end, end)
        index = tf.range(tf.size(end))
        chosen = leftmost(end > index + 1, end, row, tf.size(first))
        place = tf.cumsum(tf.cast(chosen, tf.int32))
        stop = tf.gather(tf.concat([[0], kept(end, chosen)], 0), place)
        covered = ~chosen & (index < stop)
        codes = tf.where(string == NOTHING, text.codes, CODES + string)
        return with_deleted(text._replace(codes=codes), ~covered)

    def _longest(self, text: Text, row_end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the replacement of the longest string at each character, or -1, and its end."""
        joined = encode(text, tf.zeros_like(text.rows), 1)
        codes = tf.cast(tf.io.decode_raw(joined[0], tf.uint8), tf.int64)
        codes = tf.concat([codes, [0]], 0)  # the label 0 has no children
        stops = tf.cast(tf.cumsum(byte_lengths(text.codes)), tf.int32)
        starts = stops - tf.cast(byte_lengths(text.codes), tf.int32)
        limits = tf.gather(stops, row_end - 1)
        index = tf.range(tf.size(text.codes))

        def step(
            at: tf.Tensor, unit: tf.Tensor, length: tf.Tensor, string: tf.Tensor, end: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            position = tf.gather(starts, at) + length
            label = tf.gather(codes, position)
            child = tf.bitwise.bitwise_xor(tf.gather(self._bases, unit), label)
            inside = (child < tf.size(self._labels, tf.int64)) & (label > 0)
            child = tf.where(inside, child, 0)
            matches = inside & (tf.gather(self._labels, child) == label)
            matches &= position < tf.gather(limits, at)
            matching = places(matches)
            at, child = tf.gather(at, matching), tf.gather(child, matching)
            value = tf.gather(self._values, child)
            ends_here = places(value != NOTHING)
            where = tf.gather(at, ends_here)[:, None]
            stop = tf.gather(starts, where[:, 0]) + length + 1
            string = tf.tensor_scatter_nd_update(string, where, tf.gather(value, ends_here))
            end = tf.tensor_scatter_nd_update(end, where, searchsorted(stops, stop) + 1)
            return at, child, length + 1, string, end

        shape = tf.TensorShape([None])
        *_, string, end = tf.while_loop(
            lambda at, *_: tf.size(at) > 0,
            step,
            (
                *(index, tf.zeros_like(index, tf.int64), tf.constant(0)),
                *(tf.zeros_like(index) + NOTHING, index),
            ),
            shape_invariants=(shape, shape, tf.TensorShape([]), shape, shape),
        )
        return string, end


def charsmap_rules(charsmap: bytes) -> dict[str, str]:
    """Returns the rules of a normalization, string -> replacement; see `Charsmap`."""
    units, strings = _read(charsmap)
    bases, numbers = _bases(units), _numbers(units, strings)
    # Units with labels, in the order of their parents' bases.
    (children,) = np.nonzero((units & _LABEL > 0) & (units & _LABEL < 256))
    children = children[np.argsort(children ^ units[children] & 255, kind="stable")]
    of_parents = children ^ units[children] & 255
    rules, keys, nodes = {}, [b""], np.zeros(1, np.int64)
    while keys:
        first, last = (
            np.searchsorted(of_parents, bases[nodes], side) for side in ("left", "right")
        )
        counts = last - first
        parent = np.repeat(np.arange(len(nodes)), counts)
        place = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
        nodes = children[first[parent] + place]
        labels = (units[nodes] & 255).tolist()
        keys = [keys[p] + bytes([label]) for p, label in zip(parent.tolist(), labels, strict=True)]
        for key, number in zip(keys, numbers[nodes].tolist(), strict=True):
            if number != NOTHING:
                rules[key.decode()] = strings[number].decode()
    return rules


def charsmap_of(rules: Mapping[str, str]) -> bytes:
    """Returns the normalization with these rules; see `Charsmap`."""
    values = sorted(set(rules.values()))
    strings = [value.encode() + b"\0" for value in values]
    places = dict(zip(values, np.cumsum([0, *map(len, strings)]).tolist(), strict=False))
    keys = {key.encode(): places[value] for key, value in rules.items()}
    array = double_array(keys).astype("<u4").tobytes()
    return len(array).to_bytes(4, "little") + array + b"".join(strings)


def _read(charsmap: bytes) -> tuple[np.ndarray, list[bytes]]:
    """Returns the double array, int64, and the replacements; ValueError if there are none."""
    size = int.from_bytes(charsmap[:4], "little")
    array, replacements = charsmap[4 : 4 + size], charsmap[4 + size :]
    if len(array) < max(size, 4) or size % 4:
        raise ValueError("the normalization of the SentencePiece model is damaged")
    return np.frombuffer(array, "<u4").astype(np.int64), replacements.split(b"\0")[:-1]


def _bases(units: np.ndarray) -> np.ndarray:
    """Returns where the children of each unit are."""
    # Darts-clone shifts distant positions by 8 more bits.
    return np.arange(len(units)) ^ (units >> 10 << ((units & 1 << 9) >> 6))


def _numbers(units: np.ndarray, strings: list[bytes]) -> np.ndarray:
    """Returns the number of the replacement of the string that ends at each unit, or -1; int32."""
    bases = _bases(units)
    values = np.where(bases < len(units), units[np.minimum(bases, len(units) - 1)], 0)
    values = np.where(units >> 8 & 1, values & (1 << 31) - 1, NOTHING)
    places = np.cumsum([0, *(len(string) + 1 for string in strings)])[:-1]
    # Units that no string leads to may look as if they had a value.
    numbers = np.minimum(np.searchsorted(places, values), len(strings) - 1)
    return np.where(values < 0, NOTHING, numbers).astype(np.int32)
