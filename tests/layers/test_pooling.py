import keras
import numpy as np
import pytest

from keras_transformers import layers
from keras_transformers.layers import MeanOfTokens, SampleTokens

HIDDEN = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")


def test_positions_are_gathered_and_padding_is_masked():
    positions = np.array([[0, 4], [3, 3]])
    gathered = layers.GatherPositions()(HIDDEN, positions)
    np.testing.assert_array_equal(gathered, HIDDEN[[[0], [1]], positions])
    np.testing.assert_array_equal(
        layers.PaddingMask(3)(np.array([[1, 3], [0, 2]])), [[True, False], [True, True]]
    )


def test_mean_of_tokens_counts_real_ones_and_knows_none():
    vectors = np.arange(18, dtype="float32").reshape(3, 3, 2)
    mask = np.array([[True, True, True], [True, False, True], [False, False, False]])
    expected = [vectors[0].mean(0), (vectors[1, 0] + vectors[1, 2]) / 2, [0, 0]]
    np.testing.assert_allclose(MeanOfTokens()(vectors, mask), expected, rtol=1e-6)


def test_tokens_are_drawn_as_often_as_their_probability_says():
    rows, shares = 4000, np.array([0.6, 0.3, 0.1])
    layer = SampleTokens(seed=0)
    token_ids = np.full((rows, 3), 7, "int32")
    logits = np.broadcast_to(np.log(shares), (rows, 2, 3)).astype("float32")
    positions = np.tile(np.array([[2, 0]], "int32"), (rows, 1))
    drawn = np.asarray(layer(token_ids, positions, logits, training=True))
    assert (drawn[:, :2] == 7).all()  # position 0 stands for none
    np.testing.assert_allclose(np.bincount(drawn[:, 2]) / rows, shares, atol=0.03)
    again = SampleTokens.from_config(layer.get_config())
    np.testing.assert_array_equal(again(token_ids, positions, logits, training=True), drawn)
    one, other = (np.asarray(layer(token_ids, positions, logits)) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_mean_of_thousands_in_half_precision(dtype):
    mask = np.ones((1, 5000), bool)
    mean = MeanOfTokens(dtype=dtype)(np.full((1, 5000, 1), 3.0), mask)
    assert keras.ops.convert_to_numpy(keras.ops.cast(mean, "float32"))[0, 0] == pytest.approx(
        3.0, rel=0.01
    )
