"""Calling a function on chunks of rows."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.tasks.token_inputs import in_chunks

OUTPUTS = {
    "double": tf.TensorSpec([None, None], tf.float32),
    "sum": tf.TensorSpec([None], tf.float32),
}


def in_twos(rows):
    sizes = []

    def function(chunk):
        sizes.append(chunk["rows"].shape[0])
        return {"double": 2 * chunk["rows"], "sum": tf.reduce_sum(chunk["rows"], axis=1)}

    return in_chunks(function, {"rows": rows}, OUTPUTS, size=2), sizes


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (4, [2, 2]), (5, [2, 2, 1])])
def test_any_number_of_rows(count, sizes):
    rows = np.random.default_rng(0).normal(size=(count, 3)).astype("float32")
    eager, found = in_twos(tf.constant(rows))
    assert found == sizes
    spec = tf.TensorSpec([None, None], tf.float32)
    traced = tf.function(lambda rows: in_twos(rows)[0], input_signature=[spec])(rows)
    for outputs in (eager, traced):
        np.testing.assert_array_equal(outputs["double"], 2 * rows)
        np.testing.assert_allclose(outputs["sum"], rows.sum(1), atol=1e-6)
