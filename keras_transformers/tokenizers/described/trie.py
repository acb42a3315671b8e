"""Finds known strings in texts, leftmost and longest first, in the graph."""

from collections.abc import Sequence

import tensorflow as tf

from keras_transformers.tokenizers.described.text import CODES, Text
from keras_transformers.tokenizers.tensors import kept, places, searchsorted

NOTHING = -1


class Trie:
    """Strings to look for.

    Args:
        contents: different strings, none empty.
    """

    def __init__(self, contents: Sequence[str]) -> None:
        # States are numbered, 0 is the root; keys are state * CODES + character.
        states: dict[tuple[int, int], int] = {}
        string_of = [NOTHING]
        for number, content in enumerate(contents):
            state = 0
            for character in content:
                key = (state, ord(character))
                if key not in states:
                    states[key] = len(string_of)
                    string_of.append(NOTHING)
                state = states[key]
            string_of[state] = number
        keys = sorted(states)
        self._keys = tf.constant([a * CODES + b for a, b in keys] or [-1], tf.int64)
        self._targets = tf.constant([states[key] for key in keys] or [0], tf.int64)
        self._string_of = tf.constant(string_of, tf.int32)

    def longest(self, text: Text, row_end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the longest string that starts at each character.

        Args:
            text: (characters,).
            row_end: the end of each character's row, int32 (characters,).

        Returns:
            The string's number or -1, and the index after its last character, int32 (characters,).
        """
        index = tf.range(tf.size(text.codes))
        size = tf.size(index)
        codes = tf.concat([text.codes, [0]], 0)
        last = tf.size(self._keys) - 1

        def step(
            at: tf.Tensor, state: tf.Tensor, length: tf.Tensor, string: tf.Tensor, end: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            key = state * CODES + tf.cast(tf.gather(codes, tf.minimum(at + length, size)), tf.int64)
            place = tf.minimum(searchsorted(self._keys, key), last)
            matches = (tf.gather(self._keys, place) == key) & (at + length < tf.gather(row_end, at))
            matching = places(matches)
            at = tf.gather(at, matching)
            state = tf.gather(self._targets, tf.gather(place, matching))
            accepted = tf.gather(self._string_of, state)
            ends_here = places(accepted >= 0)
            where = tf.gather(at, ends_here)[:, None]
            string = tf.tensor_scatter_nd_update(string, where, tf.gather(accepted, ends_here))
            new_end = tf.fill([tf.shape(where)[0]], length + 1) + where[:, 0]
            return at, state, length + 1, string, tf.tensor_scatter_nd_update(end, where, new_end)

        shape = tf.TensorShape([None])
        *_, string, end = tf.while_loop(
            lambda at, *_: tf.size(at) > 0,
            step,
            (
                index,
                tf.zeros_like(index, tf.int64),
                tf.constant(0),
                tf.zeros_like(index) + NOTHING,
                index,
            ),
            shape_invariants=(shape, shape, tf.TensorShape([]), shape, shape),
        )
        return string, end


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
