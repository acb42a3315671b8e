"""Relative position biases: buckets as in T5 and MPNet, and what attention does with the biases."""

import keras
import numpy as np
import pytest
from checks import round_trip

from keras_transformers.layers import (
    FeedForward,
    MultiHeadAttention,
    RelativePositionBias,
    TransformerBlock,
)
from keras_transformers.layers.relative_positions import buckets

# Where T5's and MPNet's usual 32 buckets start, from transformers' functions of both: distances 0
# to 7 (looking both ways) or 0 to 15 (looking back) have their own.
STARTS = {
    True: [*range(8), 8, 12, 16, 23, 32, 46, 64, 91],
    False: [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
}
QUERY = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")


def layer(**arguments):
    found = RelativePositionBias(8, 2, max_distance=20, **arguments)
    found.build((None, None, 8))
    found.embeddings.assign(np.random.default_rng(1).normal(size=(8, 2)))
    return found


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_usual_buckets_are_transformers_own(bidirectional):
    lengths = np.arange(300)
    options = {"num_buckets": 32, "max_distance": 128, "bidirectional": bidirectional}
    wanted = np.searchsorted(STARTS[bidirectional], lengths, side="right") - 1
    np.testing.assert_array_equal(buckets(-lengths, **options), wanted)
    ahead = np.where(lengths > 0, wanted + 16, 0) if bidirectional else 0 * lengths
    np.testing.assert_array_equal(buckets(lengths, **options), ahead)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_bias_depends_on_head_and_distance_alone(bidirectional):
    of_layer = layer(bidirectional=bidirectional)
    found = of_layer(np.zeros((3, 50, 1))).numpy()
    assert found.shape == (1, 2, 50, 50)
    distance = np.arange(50)[None] - np.arange(50)[:, None]
    options = {"num_buckets": 8, "max_distance": 20, "bidirectional": bidirectional}
    wanted = of_layer.embeddings.numpy()[buckets(distance, **options)]
    np.testing.assert_array_equal(found[0], wanted.transpose(2, 0, 1))


def test_a_step_of_decoding_has_its_row():
    of_layer = layer(bidirectional=False)
    keys = np.zeros((3, 7, 1))
    row = of_layer(keys[:, :1], keys, start_index=4)
    np.testing.assert_array_equal(row, of_layer(keys)[:, :, 4:5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_buckets": 7}, "num_buckets=7: .*even .*4"),
        ({"num_buckets": 2}, "num_buckets=2: expected an even number"),
        ({"num_buckets": 32, "max_distance": 8}, "max_distance=8 is too small"),
        ({"num_buckets": 32, "max_distance": 16, "bidirectional": False}, "max_distance=16 is too"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RelativePositionBias(num_heads=2, **arguments)


def test_attention_adds_the_bias_before_the_softmax():
    attention = MultiHeadAttention(num_heads=2, hidden_dim=8)
    mask = np.array([[True] * 6, [True] * 4 + [False] * 2])
    bias = layer()(QUERY)
    _, plain = attention(QUERY, attention_mask=mask, return_attention_scores=True)
    output, found = attention(
        QUERY, attention_mask=mask, attention_bias=bias, return_attention_scores=True
    )
    wanted = np.asarray(plain) * np.exp(bias)
    wanted /= wanted.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(output - attention(QUERY, attention_mask=mask)).max() > 0.01
    zero = attention(QUERY, attention_mask=mask, attention_bias=0 * bias)
    np.testing.assert_array_equal(zero, attention(QUERY, attention_mask=mask))


def test_an_encoder_with_one_table_for_its_layers_comes_back(tmp_path):
    inputs = keras.Input((None, 8))
    bias, hidden = RelativePositionBias(8, 2, name="relative_position_bias")(inputs), inputs
    for _ in range(2):
        block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(12, 8))
        hidden = block(hidden, attention_bias=bias)
    model = keras.Model(inputs, hidden)
    table = model.get_layer("relative_position_bias").embeddings
    table.assign(np.random.default_rng(1).normal(size=(8, 2)))
    again = round_trip(model, tmp_path)
    np.testing.assert_array_equal(again(QUERY), model(QUERY))
    table.assign(0 * table)
    assert np.abs(again(QUERY) - model(QUERY)).max() > 0.01


def test_the_table_learns():
    import tensorflow as tf

    of_layer, weights = layer(), np.random.default_rng(2).normal(size=(1, 2, 6, 6))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(of_layer(QUERY) * weights)
    (gradient,) = tape.gradient(loss, [of_layer.embeddings.value])
    distance = np.arange(6)[None] - np.arange(6)[:, None]
    found = buckets(distance, num_buckets=8, max_distance=20, bidirectional=True)
    wanted = [weights[0][:, found == bucket].sum(-1) for bucket in range(8)]
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), wanted, atol=1e-5)
