import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.layers.bags import MeanOfTokens, RowEmbedding


def test_row_embedding_is_keras_embedding():
    ids = np.array([[1, 4, 1], [0, 2, 2]])
    ours, keras_own = RowEmbedding(5, 3), keras.layers.Embedding(5, 3)
    expected = keras_own(ids)
    ours.build()
    ours.set_weights(keras_own.get_weights())
    np.testing.assert_array_equal(ours(ids), expected)
    again = RowEmbedding.from_config(ours.get_config())
    assert (again.input_dim, again.output_dim) == (5, 3)


def test_the_gradient_has_a_slice_for_each_id_and_sgd_moves_those_rows_alone():
    layer = RowEmbedding(1000, 2, embeddings_initializer="zeros")
    ids = tf.constant([[7, 7, 3]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids) * [1.0, 2.0])
    gradients = tape.gradient(loss, layer.trainable_weights)
    assert isinstance(gradients[0], tf.IndexedSlices)
    assert gradients[0].indices.numpy().tolist() == [7, 7, 3]
    keras.optimizers.SGD(0.5).apply(gradients, layer.trainable_weights)
    (rows,) = layer.get_weights()
    assert rows[7].tolist() == [-1.0, -2.0]
    assert rows[3].tolist() == [-0.5, -1.0]
    assert np.count_nonzero(rows.any(axis=1)) == 2


def test_the_matrix_is_never_read_as_a_whole():
    """A step that moves rows in place makes TensorFlow copy the matrix for each such read."""
    layer = RowEmbedding(1000, 2)
    layer.build()
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec([None, None], tf.int32)).graph
    found = [operation.type for operation in graph.get_operations()]
    assert "ResourceGather" in found
    assert "ReadVariableOp" not in found


def test_mean_of_tokens_counts_real_ones_and_knows_none():
    vectors = np.arange(18, dtype="float32").reshape(3, 3, 2)
    mask = np.array([[True, True, True], [True, False, True], [False, False, False]])
    expected = [vectors[0].mean(0), (vectors[1, 0] + vectors[1, 2]) / 2, [0, 0]]
    np.testing.assert_allclose(MeanOfTokens()(vectors, mask), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_mean_of_thousands_in_half_precision(dtype):
    mask = np.ones((1, 5000), bool)
    mean = MeanOfTokens(dtype=dtype)(np.full((1, 5000, 1), 3.0), mask)
    assert keras.ops.convert_to_numpy(keras.ops.cast(mean, "float32"))[0, 0] == pytest.approx(
        3.0, rel=0.01
    )
