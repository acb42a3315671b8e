"""Helpers for tensors against TensorFlow's own functions, which need more nodes."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.tokenizers.tensors import (
    item_numbers,
    kept,
    places,
    row_numbers,
    searchsorted,
)


def num_nodes(function, *values):
    """The nodes of a function's graph for vectors of any length."""
    specs = [tf.TensorSpec([None], tf.convert_to_tensor(value).dtype) for value in values]
    graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
    return len(graph.get_operations())


@pytest.mark.parametrize("count", [0, 1, 7])
def test_they_do_what_tensorflow_does_with_fewer_nodes(count):
    random = np.random.default_rng(count)
    values, mask = random.integers(0, 9, count), random.integers(0, 2, count).astype(bool)
    ascending, lengths = np.sort(random.integers(0, 9, 5)), random.integers(0, 3, count)
    for ours, theirs, given in (
        (kept, tf.boolean_mask, (values, mask)),
        (places, lambda mask: tf.where(mask)[:, 0], (mask,)),
        (item_numbers, lambda x: tf.repeat(tf.range(tf.size(x)), x), (lengths,)),
        *(
            (
                lambda x, y, side=side: searchsorted(x, y, side=side),
                lambda x, y, side=side: tf.searchsorted(x, y, side=side),
                (ascending, values),
            )
            for side in ("left", "right")
        ),
    ):
        found, expected = ours(*given), theirs(*given)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        assert num_nodes(ours, *given) < num_nodes(theirs, *given)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 2], [3, 0, 0, 1, 0]])
def test_rows_of_values(lengths):
    rows = tf.RaggedTensor.from_row_lengths(tf.range(sum(lengths)), tf.constant(lengths, tf.int64))
    found, expected = row_numbers(rows), rows.value_rowids()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
