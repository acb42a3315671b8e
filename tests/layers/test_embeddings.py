import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import round_trip, same_outputs

from keras_transformers import layers
from keras_transformers.layers import RowEmbedding

HIDDEN = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")


def test_token_embedding_projects_back_with_its_own_matrix():
    layer = layers.TokenEmbedding(10, 8, scale=8**0.5)
    ids = np.array([[1, 2, 9]])
    vectors = layer(ids)
    matrix = np.asarray(layer.embeddings)
    np.testing.assert_allclose(vectors, matrix[ids] * np.float32(8**0.5), rtol=1e-6)
    logits = layer(HIDDEN, reverse=True)
    np.testing.assert_allclose(logits, HIDDEN @ matrix.T, atol=1e-5)
    assert layer.count_params() == 80


@pytest.mark.parametrize("bad", [-1, 10, -11])
def test_ids_outside_the_vocabulary_are_refused(bad):
    """TensorFlow takes -1 for the last row, and XLA and JAX have rows or NaN for all others."""
    layer = layers.TokenEmbedding(10, 8)
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    ids = np.array([[1, bad, 9]], "int32")
    for call in (layer, model):
        with pytest.raises(ValueError, match=f"token_ids has {bad}: .* has ids 0 to 9"):
            call(ids)


IDS = np.zeros((2, 5000), "int32")
SUMMED = {
    "segment": (lambda **o: layers.Embedding(3, 1, **o), lambda layer: layer(IDS)),
    "token": (lambda **o: layers.TokenEmbedding(3, 1, **o), lambda layer: layer(IDS)),
    "position": (
        lambda **o: layers.PositionEmbedding(3, **o),
        lambda layer: layer(tf.zeros((2, 5000, 1), "bfloat16"), positions=IDS),
    ),
    "padded position": (
        lambda **o: layers.PaddedPositionEmbedding(5000, **o),
        lambda layer: layer(tf.zeros((2, 5000, 1), "bfloat16"), IDS.astype("bool")),
    ),
    "relative": (
        lambda **o: layers.RelativePositionBias(4, 1, **o),
        lambda layer: layer(tf.zeros((1, 200, 1))),
    ),
    "characters": (
        lambda **o: layers.CharacterCNN([(1, 1)], num_characters=3, embedding_dim=1, **o),
        lambda layer: layer(IDS[..., None]),
    ),
}


@pytest.mark.parametrize("kind", SUMMED)
def test_gradients_of_many_equal_ids_are_summed_in_float32(kind):
    """bfloat16 has 8 bits: 256 + 1 is 256."""
    make, call = SUMMED[kind]
    gradients = []
    for dtype in ("float32", "mixed_bfloat16"):
        layer = make(dtype=dtype)
        call(layer)
        if kind == "characters":  # from here on, its output is the character's vector
            layer.set_weights([np.ones(w.shape) for w in layer.get_weights()])
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.cast(call(layer), "float32"))
        (gradient,) = tape.gradient(total, [layer.embeddings.value])
        gradients.append(tf.convert_to_tensor(gradient))
    assert max(gradients[0].numpy().ravel()) > 1000
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-2)


def test_logits_of_a_half_precision_embedding_are_float32():
    layer = layers.TokenEmbedding(10, 8, dtype="mixed_bfloat16")
    assert layer(np.array([[1]])).dtype == "bfloat16"
    assert layer(HIDDEN, reverse=True).dtype == "float32"


def test_sinusoids_are_the_papers():
    layer = layers.SinusoidalPositionEmbedding(64)
    table = layer(np.zeros((1, 50, 8), "float32"))[0].numpy()
    for position in (0, 1, 7, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            np.testing.assert_allclose(
                table[position, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-6
            )


def test_all_sines_may_come_before_the_cosines():
    rows = np.asarray(layers.SinusoidalPositionEmbedding(5)(0 * HIDDEN))
    halves = np.asarray(layers.SinusoidalPositionEmbedding(5, interleaved=False)(0 * HIDDEN))
    np.testing.assert_array_equal(halves, np.concatenate([rows[..., 0::2], rows[..., 1::2]], -1))


@pytest.mark.parametrize("distance", [1, 7, 40])
def test_a_later_position_is_a_linear_function_of_an_earlier_one(distance):
    """Why the paper chose sines (section 3.5): one rotation per distance, wherever it starts.

    sin(a + k) = sin(a) cos(k) + cos(a) sin(k); cos(a + k) = cos(a) cos(k) - sin(a) sin(k).
    """
    width, length = 8, 64
    zeros = np.zeros((1, length, width), "float32")
    rows = np.asarray(layers.SinusoidalPositionEmbedding(length)(zeros))[0]
    rotation = np.zeros((width, width))
    for i in range(0, width, 2):
        angle = distance / 10_000 ** (i / width)
        rotation[i : i + 2, i : i + 2] = [
            [np.cos(angle), np.sin(angle)],
            [-np.sin(angle), np.cos(angle)],
        ]
    np.testing.assert_allclose(rows[distance:], rows[:-distance] @ rotation.T, atol=2e-5)


@pytest.mark.parametrize("name", ["PositionEmbedding", "SinusoidalPositionEmbedding"])
def test_positions_start_where_told_and_end_with_an_error(name):
    layer = getattr(layers, name)(6)
    all_rows = layer(np.zeros((1, 6, 8), "float32")).numpy()
    later = layer(np.zeros((2, 2, 8), "float32"), start_index=3).numpy()
    np.testing.assert_array_equal(later[1], all_rows[0, 3:5])
    with pytest.raises(ValueError, match="7.*6 positions"):
        layer(np.zeros((1, 7, 8), "float32"))


@pytest.mark.parametrize("name", ["PositionEmbedding", "IndexedPositionEmbedding"])
def test_positions_may_start_at_a_later_row(name, tmp_path):
    """RoBERTa: rows 0 and 1 are never used, and its 514 rows hold 512 tokens."""
    layer = getattr(layers, name)(6, first_position=2)
    all_rows = layer(np.zeros((1, 6, 8), "float32")).numpy()
    assert layer.count_params() == (2 + 6) * 8
    np.testing.assert_array_equal(all_rows[0], np.asarray(layer.embeddings)[2:])
    later = layer(np.zeros((2, 2, 8), "float32"), start_index=3).numpy()
    np.testing.assert_array_equal(later[1], all_rows[0, 3:5])
    with pytest.raises(ValueError, match="7.*6 positions"):
        layer(np.zeros((1, 7, 8), "float32"))
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layer(inputs))
    vectors = np.ones((1, 4, 8), "float32")
    same_outputs(model(vectors), round_trip(model, tmp_path)(vectors))


def test_given_positions_count_from_the_first_one():
    layer = layers.IndexedPositionEmbedding(6, first_position=2)
    zeros = np.zeros((1, 3, 8), "float32")
    in_order = layer(zeros).numpy()
    found = layer(zeros, positions=np.array([[2, 0, 1]])).numpy()
    np.testing.assert_array_equal(found, in_order[:, [2, 0, 1]])


def test_padding_on_either_side_has_no_position():
    layer = layers.PaddedPositionEmbedding(6, first_position=2)
    zeros = np.zeros((3, 5, 8), "float32")
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], bool)
    found, rows = layer(zeros, mask).numpy(), np.asarray(layer.embeddings)[2:]
    np.testing.assert_array_equal(found[0, :3], rows[:3])
    np.testing.assert_array_equal(found[1, 2:], rows[:3])
    np.testing.assert_array_equal(found[2], rows[:5])
    assert np.isfinite(layer(zeros, np.zeros((3, 5), bool))).all()
    with pytest.raises(ValueError, match="7.*6 positions"):
        layer(np.zeros((1, 7, 8), "float32"), np.ones((1, 7), bool))


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
    """After an update of rows in place, TensorFlow would copy the matrix for each such read."""
    layer = RowEmbedding(1000, 2)
    layer.build()
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec([None, None], tf.int32)).graph
    found = [operation.type for operation in graph.get_operations()]
    assert "ResourceGather" in found
    assert "ReadVariableOp" not in found


def test_sinusoids_of_opennmt_start_at_position_1_and_end_at_the_longest_wave():
    layer = layers.SinusoidalPositionEmbedding(
        7, interleaved=False, first_position=1, endpoint=True
    )
    found = np.asarray(layer(np.zeros((1, 7, 6), "float32")))[0]
    angles = np.arange(1, 8)[:, None] * np.array([1, 1e-2, 1e-4])
    np.testing.assert_allclose(found, np.hstack([np.sin(angles), np.cos(angles)]), atol=1e-6)
    again = layers.SinusoidalPositionEmbedding.from_config(layer.get_config())
    np.testing.assert_array_equal(again(np.zeros((1, 7, 6), "float32"))[0], found)
