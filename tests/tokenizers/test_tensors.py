"""Helpers for tensors against TensorFlow's own functions, which need more nodes."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.tokenizers import BytePairTokenizer, NgramTokenizer
from keras_transformers.tokenizers.tensors import (
    item_numbers,
    kept,
    places,
    row_numbers,
    searchsorted,
    texts_of,
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


@pytest.mark.parametrize("wrap", [list, tuple, lambda texts: np.array(texts, object)])
def test_half_of_a_surrogate_pair_is_named_by_row(wrap):
    assert texts_of(wrap(["a", "\U0001f600"])).numpy().tolist() == [b"a", "\U0001f600".encode()]
    with pytest.raises(ValueError, match=r"^words\[1\] .*character 2: repair"):
        texts_of(wrap(["a", "a \ud83d"]), "words")
    with pytest.raises(ValueError, match=r"text of shape \(\): expected \(batch,\)"):
        texts_of("a")


def test_training_texts_with_half_of_a_surrogate_pair(tmp_path):
    for train in (
        lambda texts: BytePairTokenizer.train(texts, tmp_path / "bpe", vocabulary_size=300),
        NgramTokenizer.train,
    ):
        with pytest.raises(ValueError, match="^text 1 .*surrogate"):
            train(["a b", "c \ud83d"])
    assert not list(tmp_path.iterdir())
