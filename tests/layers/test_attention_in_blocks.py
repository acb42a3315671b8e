"""Attention in blocks of queries computes what attention over all scores does, also backward."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import in_float64, same_but_for_rounding

from keras_transformers.families.bert.model import bert
from keras_transformers.layers import MultiHeadAttention, attend
from keras_transformers.layers.memory import blocks
from keras_transformers.layers.memory.recomputation import RecomputableLayer

pytestmark = pytest.mark.kernels

ROWS, LENGTH, HEADS, WIDTH = 3, 10, 2, 8
RANDOM = np.random.default_rng(0)
HIDDEN = RANDOM.normal(size=(ROWS, LENGTH, WIDTH)).astype("float32")
OTHER = RANDOM.normal(size=(ROWS, 7, WIDTH)).astype("float32")
PADDING = np.arange(LENGTH) < np.array([10, 6, 0])[:, None]  # the last row sees nothing
BIAS = RANDOM.normal(size=(1, HEADS, LENGTH, LENGTH)).astype("float32")
CALLS = {
    "nothing": {},
    "padding": {"attention_mask": PADDING},
    "causal": {},
    "causal, padding": {"attention_mask": PADDING[:, ::-1]},
    "window": {"attention_mask": PADDING},
    "grouped": {"attention_mask": PADDING},
    "by query": {"attention_mask": PADDING[:, None, :] & PADDING[:, :, None]},
    "by head": {"attention_mask": RANDOM.random((1, HEADS, LENGTH, LENGTH)) < 0.5},
    "bias": {"attention_mask": PADDING, "attention_bias": tf.constant(BIAS)},
    "bias of keys": {"attention_bias": tf.constant(BIAS[:, :1, :1])},
    "to other positions": {"value": OTHER, "attention_mask": PADDING[:, :7]},
}


OPTIONS = {
    "causal": {"use_causal_mask": True},
    "causal, padding": {"use_causal_mask": True},
    "window": {"window": 2},
    "grouped": {"num_key_value_heads": 1},
}


@pytest.fixture
def in_blocks(monkeypatch):
    """Makes all attention go in blocks of 4 queries."""
    monkeypatch.setattr(blocks, "MOST_SCORES", 0)
    monkeypatch.setattr(blocks, "BLOCK", 4)


def made(**options):
    layer = MultiHeadAttention(HEADS, WIDTH, kernel_initializer="random_normal", **options)
    layer.build((None, None, WIDTH))
    for weight in layer.trainable_variables:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape) * 0.5)
    return layer


def results(layer, **arguments):
    """Returns the output, and the gradients by the input, the weights and the bias."""
    hidden, sources = tf.constant(HIDDEN, layer.compute_dtype), []
    if "attention_bias" in arguments:
        sources = [tf.cast(arguments["attention_bias"], layer.compute_dtype)]
        arguments = arguments | {"attention_bias": sources[0]}
    sources = [hidden, *sources]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        output = layer(hidden, **arguments)
        output = output[0] if isinstance(output, tuple) else output
        loss = tf.reduce_sum(tf.cast(output, "float64") ** 2)
    weights = [variable.value for variable in layer.trainable_variables]
    return [output, *tape.gradient(loss, [*sources, *weights])]


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("name", CALLS)
def test_outputs_and_gradients_are_those_of_all_scores(name):
    layer = made(**OPTIONS.get(name, {}))
    whole, exact = (
        results(each, return_attention_scores=True, **CALLS[name])
        for each in (layer, in_float64(layer))
    )
    same_but_for_rounding(results(layer, **CALLS[name]), whole, exact)


@pytest.mark.usefixtures("in_blocks")
def test_half_precision_is_near():
    layer = made(dtype="mixed_bfloat16", use_causal_mask=True)
    given = CALLS["causal, padding"]
    expected = results(layer, return_attention_scores=True, **given)
    largest = max(np.abs(gradient).max() for gradient in expected[1:])
    for a, b in zip(results(layer, **given), expected, strict=True):
        a, b = (tf.cast(x, "float32") for x in (a, b))
        np.testing.assert_allclose(a, b, atol=0.01 * largest)


@pytest.mark.usefixtures("in_blocks")
def test_dropout_is_the_same_forward_and_backward():
    """The gradient is that of a function whose dropout is fixed."""
    layer = made(attention_dropout=0.5, dtype="float64", use_causal_mask=True)
    random = np.random.default_rng(2)
    x, direction = random.normal(size=(2, 1, LENGTH, WIDTH))

    def loss(x):
        layer.dropout.seed_generator.state.assign([7, 0])
        return tf.reduce_sum(layer(x, training=True) ** 2)

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x)
    slope = (loss(x + 1e-5 * direction) - loss(x - 1e-5 * direction)) / 2e-5
    assert np.sum(tape.gradient(value, x) * direction) == pytest.approx(float(slope), rel=1e-6)
    assert abs(value - tf.reduce_sum(layer(x) ** 2)) > 0.1


@pytest.mark.usefixtures("in_blocks")
def test_dropout_drops_its_share_in_every_block():
    shape = (1, 1, 8, 2000)
    drawn = blocks.attention_in_blocks(
        tf.zeros((1, 1, 8, 4)),
        tf.zeros((1, 1, 2000, 4)),
        tf.eye(2000)[None, None],
        dropout=0.25,
        seed=tf.constant([1, 2], "int64"),
    )
    kept = drawn.numpy() > 0
    assert kept.shape == shape
    np.testing.assert_allclose(drawn[kept], 1 / (0.75 * 2000), rtol=1e-5)
    np.testing.assert_allclose(kept.mean(axis=-1), 0.75, atol=0.05)
    assert len(np.unique(kept.reshape(8, -1), axis=0)) == 8  # each query its own


def test_only_known_long_lengths_go_in_blocks():
    def goes(queries, keys):
        shape = (None, 2, queries, 4), (None, 2, keys, 4)
        return blocks.goes_in_blocks(*map(keras.KerasTensor, shape))

    assert [goes(1024, 1024), goes(1025, 1024), goes(1, 4096)] == [False, True, False]
    assert not goes(None, 4096)


@pytest.mark.slow
@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("length", [LENGTH, None])
def test_fit_goes_in_blocks_if_all_batches_have_one_length(length):
    model = bert(vocabulary_size=20, num_layers=1, num_heads=HEADS, hidden_dim=WIDTH)
    model = keras.Model(model.input, model.output["pooled_output"])
    model.compile("sgd", "mse", jit_compile=False)
    tokens = tf.ones((ROWS, LENGTH), "int32")
    inputs = {"token_ids": tokens, "segment_ids": tokens, "padding_mask": tokens > 0}
    shape = {name: tf.TensorSpec((None, length), tensor.dtype) for name, tensor in inputs.items()}
    target = tf.TensorSpec((None, WIDTH))
    batches = tf.data.Dataset.from_generator(
        lambda: [(inputs, tf.zeros((ROWS, WIDTH)))] * 2, output_signature=(shape, target)
    )
    with mock.patch.object(attend, "attention_in_blocks", wraps=blocks.attention_in_blocks) as f:
        model.fit(batches, verbose=0)
    assert f.called == (length is not None)


class Recomputed(RecomputableLayer):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def build(self, shape):
        pass

    def call(self, x, training=None):
        if not self.recomputes:
            return self.attention(x, training=training)
        return self.recomputed(lambda x: self.attention(x, training=training), x)


@pytest.mark.slow
@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("compiler", ["eager", "graph", "xla"])
def test_compiled_and_within_a_recomputed_layer(compiler):
    layer = Recomputed(made(attention_dropout=0.5))
    found = []
    for recomputes in (False, True):
        layer.recomputes = recomputes
        layer.attention.dropout.seed_generator.state.assign([7, 0])

        def compute():
            return results(layer, training=True)

        if compiler != "eager":
            compute = tf.function(compute, autograph=False, jit_compile=compiler == "xla")
        found.append(compute())
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
