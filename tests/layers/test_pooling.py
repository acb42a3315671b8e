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


def test_an_end_token_is_pooled_where_it_is_last():
    layer = layers.EndTokenPooler(3, end_token_id=2, activation="tanh")
    ids = np.array([[0, 2, 2, 5, 2], [2, 7, 8, 9, 3]])
    mask = np.array([[True, True, True, True, False], [True] * 5])
    found = layer(HIDDEN, ids, mask)
    kernel, bias = map(np.asarray, layer.weights)
    wanted = np.tanh(HIDDEN[[0, 1], [2, 0]] @ kernel + bias)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    none = layer(HIDDEN[:1], np.zeros((1, 5), "int32"), mask[:1])  # no end token
    np.testing.assert_allclose(none, np.tanh(HIDDEN[:1, 0] @ kernel + bias), atol=1e-6)
    assert layer(HIDDEN[:0], ids[:0], mask[:0]).shape == (0, 3)
    again = type(layer).from_config(layer.get_config())
    assert (again.units, again.end_token_id) == (3, 2)


def test_tokens_move_right_after_a_start_token_or_the_last_one():
    ids = np.array([[5, 6, 2, 1, 1], [7, 8, 9, 4, 2]], "int32")
    mask = ids != 1
    for start, first in ((None, [2, 2]), (0, [0, 0]), (3, [3, 3])):
        layer = layers.ShiftRight(start)
        found = np.asarray(layer(ids, mask))
        np.testing.assert_array_equal(found, np.column_stack([first, ids[:, :-1]]))
        assert found.dtype == "int32"
        assert layers.ShiftRight.from_config(layer.get_config()).start_token_id == start
        assert layer(ids[:0], mask[:0]).shape == (0, 5)


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
