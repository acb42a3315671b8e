"""Finds known strings in texts, leftmost and longest first, in the graph."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.described.text import CODES, Text
from keras_transformers.tokenizers.tensors import kept, places, searchsorted

NOTHING = -1


class Trie:
    """Strings to look for.

    A state is the start of a string; 0 is the empty one. States are numbered by length, then by the
    state before the last character and that character. So the keys, state * CODES + character, are
    sorted, and the key at place i leads to state i + 1.

    Args:
        contents: different strings, none empty.

    Attributes:
        depth: the length of the longest string.
    """

    def __init__(self, contents: Sequence[str]) -> None:
        lengths = np.array([len(content) for content in contents], np.int64)
        codes = np.frombuffer("".join(contents).encode("utf-32-le"), np.uint32).astype(np.int64)
        firsts = np.cumsum(lengths) - lengths
        states = np.zeros(len(contents), np.int64)  # of each string's start so far
        keys = [np.zeros(0, np.int64)]
        self.depth = int(lengths.max(initial=0))
        for at in range(self.depth):
            (longer,) = np.nonzero(lengths > at)
            level, number = np.unique(
                states[longer] * CODES + codes[firsts[longer] + at], return_inverse=True
            )
            states[longer] = 1 + sum(map(len, keys)) + number
            keys.append(level)
        # An end that no character reaches, so that an empty table works too.
        all_keys = np.concatenate([*keys, [np.iinfo(np.int64).max]])
        string_of = np.full(len(all_keys), NOTHING, np.int32)
        string_of[states] = np.arange(len(contents), dtype=np.int32)
        self._keys, self._string_of = tf.constant(all_keys), tf.constant(string_of)
        self._count = max(len(contents), 1)

    def state(self, start: str) -> int:
        """Returns the state of a string's start; from a start of none, nothing is found."""
        state, keys = 0, self._keys.numpy()
        for character in start:
            key = state * CODES + ord(character)
            place = int(np.searchsorted(keys, key))
            if keys[place] != key:
                return len(keys)
            state = place + 1
        return state

    def matches(
        self, text: Text, row_end: tf.Tensor, states: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns all occurrences of the strings, shorter ones first.

        Args:
            text: (characters,).
            row_end: the end of each character's row, int32 (characters,).
            states: the state before each character, int64 (characters,); 0 by default.

        Returns:
            The index of each occurrence's first character, its length and the string's number,
            int32 (occurrences,).
        """
        index = tf.range(tf.size(text.codes))

        def step(
            at: tf.Tensor, state: tf.Tensor, length: tf.Tensor, *occurrences: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            key = state * CODES + tf.cast(tf.gather(text.codes, at + length), tf.int64)
            place = searchsorted(self._keys, key)
            matching = places(tf.gather(self._keys, place) == key)
            at, place = tf.gather(at, matching), tf.gather(place, matching)
            length += 1
            string = tf.gather(self._string_of, place + 1)
            ends = places(string != NOTHING)
            new = (tf.gather(at, ends), tf.fill([tf.size(ends)], length), tf.gather(string, ends))
            goes_on = places(at + length < tf.gather(row_end, at))
            return (
                tf.gather(at, goes_on),
                tf.cast(tf.gather(place, goes_on) + 1, tf.int64),
                length,
                *(tf.concat(columns, 0) for columns in zip(occurrences, new, strict=True)),
            )

        many, none = tf.TensorShape([None]), tf.zeros([0], tf.int32)
        states = tf.zeros_like(index, tf.int64) if states is None else states
        _, _, _, *columns = tf.while_loop(
            lambda at, *_: tf.size(at) > 0,
            step,
            (index, states, tf.constant(0), none, none, none),
            shape_invariants=(many, many, tf.TensorShape([]), many, many, many),
        )
        return tuple(columns)

    def longest(
        self, text: Text, row_end: tf.Tensor, states: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the longest string that starts at each character; for arguments see `matches`.

        Returns:
            The string's number or -1, and the index after its last character, int32 (characters,).
        """
        at, length, string = self.matches(text, row_end, states)
        index = tf.range(tf.size(text.codes))
        order = tf.cast(length, tf.int64) * self._count + tf.cast(string, tf.int64)
        order = tf.maximum(tf.math.unsorted_segment_max(order, at, tf.size(index)), NOTHING)
        longest = tf.cast(order // self._count, tf.int32)
        number = tf.where(order < 0, NOTHING, tf.cast(order % self._count, tf.int32))
        return number, index + tf.maximum(longest, 0)


def row_bounds(text: Text) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns, for each row, its first character; for each character, its row and the row's end."""
    begins = text.begins()
    size = tf.size(text.codes)
    first = places(begins, tf.int32)
    row = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    return first, row, tf.gather(tf.concat([first[1:], [size]], 0), row)


def leftmost(matches: tf.Tensor, end: tf.Tensor, row: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Returns which matches to use: in each row the first, then the first after it, ...

    Args:
        matches: whether a string starts at each character, bool (characters,).
        end: the index after it, int32 (characters,).
        row: int32 (characters,), from 0.
        num_rows: the number of rows.
    """
    size = tf.size(matches)

    def step(open_: tf.Tensor, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        at = places(open_, tf.int32)
        rows = tf.gather(row, at)
        first = tf.math.unsorted_segment_min(at, rows, num_rows)  # (rows,)
        taken = kept(first, first < size)
        chosen |= marks(taken, size)
        stop = tf.gather(tf.concat([end, [size]], 0), tf.minimum(first, size))
        return open_ & (tf.range(size) >= tf.gather(stop, row)), chosen

    shape = tf.TensorShape([None])
    _, chosen = tf.while_loop(
        lambda open_, _: tf.reduce_any(open_),
        step,
        (matches, tf.zeros_like(matches)),
        shape_invariants=(shape, shape),
    )
    return chosen


def marks(places: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns True at the places, bool (size,); places after the end are left out."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(places), places, size + 1)
    return counts[:size] > 0
