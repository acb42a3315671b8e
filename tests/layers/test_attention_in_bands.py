"""Attention within a window: blocks of queries and the keys near them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import in_float64, same_but_for_rounding

from keras_transformers.layers import MultiHeadAttention, Rows
from keras_transformers.layers.attend import _whole, attend
from keras_transformers.layers.masks import Reach
from keras_transformers.layers.memory import bands

pytestmark = pytest.mark.kernels

RANDOM = np.random.default_rng(0)
BATCH, HEADS, DIM = 2, 4, 8


def tensors(length, key_heads=HEADS):
    sizes = (HEADS, key_heads, key_heads)
    return [
        tf.constant(RANDOM.normal(size=(BATCH, heads, length, DIM)).astype("float32"))
        for heads in sizes
    ]


def widened(tensors):
    return [tf.cast(tensor, tf.float64) for tensor in tensors]


def padding(length):
    real = np.arange(length) < np.array([[length], [length // 3]])
    return tf.constant(real[:, None, None, :])


OPTIONS = {"bias": None, "any_visible": None, "scores_dtype": "float32", "dropout": None}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("window", "length", "key_heads"), [(3, 129, 4), (40, 200, 2), (64, 320, 4)]
)
def test_results_and_gradients_are_those_of_the_mask(window, length, key_heads, padded, causal):
    given, reach = tensors(length, key_heads), Reach(causal, window)
    mask = padding(length) if padded else None
    upstream = tf.constant(RANDOM.normal(size=(BATCH, HEADS, length, DIM)).astype("float32"))

    def results(compute, *given, upstream=upstream, **options):
        with tf.GradientTape() as tape:
            tape.watch(given)
            context, _ = compute(*given, mask=mask, reach=reach, **options)
        return [context, *tape.gradient(context, given, upstream)]

    in_bands, whole = results(attend, *given), results(_whole, *given, **OPTIONS)
    options = OPTIONS | {"scores_dtype": "float64"}
    exact = results(_whole, *widened(given), upstream=tf.cast(upstream, "float64"), **options)
    same_but_for_rounding(in_bands, whole, exact)


def test_only_long_texts_go_in_bands(monkeypatch):
    monkeypatch.setattr(
        "keras_transformers.layers.attend.attention_in_bands", lambda *_, **__: 1 / 0
    )
    reach = Reach(window=64)
    attend(*tensors(256), reach=reach)
    attend(*tensors(300))
    full = tf.ones((1, 1, 300, 300), tf.bool)
    attend(*tensors(300), reach=reach, mask=full)  # a mask that differs by query
    with pytest.raises(ZeroDivisionError):
        attend(*tensors(257), reach=reach)


@pytest.mark.one_case
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_graph_with_an_unknown_length_decides_when_it_runs(policy, tmp_path):
    layer = MultiHeadAttention(2, 16, window=5, attention_dropout=0.1, dtype=policy)
    layer.build((None, None, 16))

    class Module(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec((None, None, 16)),
                tf.TensorSpec((None, None), tf.bool),
            ]
        )
        def __call__(self, hidden, mask):
            return layer(hidden, attention_mask=mask)

    module = Module()
    module.weights = [weight.value for weight in layer.weights]
    tf.saved_model.save(module, str(tmp_path))
    served, exact = tf.saved_model.load(str(tmp_path)), in_float64(layer)
    for length in (0, 1, 7, 128, 129, 500):
        hidden = RANDOM.normal(size=(2, length, 16)).astype("float32")
        mask = np.arange(length) < np.array([[length], [(length + 1) // 2]])
        expected, _ = layer(hidden, attention_mask=mask, return_attention_scores=True)
        found = served(hidden, mask)
        assert found.dtype == layer.compute_dtype
        expected, found = (np.asarray(x, "float32") for x in (expected, found))
        if policy == "float32":
            same_but_for_rounding(found, expected, exact(hidden, attention_mask=mask))
        else:
            np.testing.assert_allclose(found, expected, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_a_step_of_unknown_length_has_no_branches_and_the_same_gradients(causal):
    """XLA compiles a step anew for other values if a gradient goes through a branch."""
    reach = Reach(causal, window=5)

    def gradient(*given):
        with tf.GradientTape() as tape:
            tape.watch(given)
            context, _ = attend(*given, reach=reach)
            loss = tf.reduce_sum(context**2)
        return [loss, *tape.gradient(loss, given)]

    spec = tf.TensorSpec((BATCH, HEADS, None, DIM))
    unknown = tf.function(gradient, input_signature=[spec] * 3).get_concrete_function()
    assert not {op.type for op in unknown.graph.get_operations()} & {"If", "StatelessIf", "Case"}
    compiled = tf.function(gradient, input_signature=[spec] * 3, jit_compile=True)
    for length in (7, 200):
        given = tensors(length)
        for function in (unknown, compiled):
            for one, other in zip(function(*given), gradient(*given), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_real_tokens_alone_as_in_exports():
    layer = MultiHeadAttention(2, 16, window=5)
    hidden = RANDOM.normal(size=(2, 150, 16)).astype("float32")
    mask = np.arange(150) < np.array([[150], [60]])
    plain, exact = (
        np.asarray(each(hidden, attention_mask=mask))[mask] for each in (layer, in_float64(layer))
    )
    layout = Rows(keras.ops.convert_to_tensor(mask))
    rows = layer(layout.tokens(keras.ops.convert_to_tensor(hidden)), layout=layout)
    same_but_for_rounding(np.asarray(layout.padded(rows))[mask], plain, exact)


def test_dropout_in_a_graph_trains():
    layer = MultiHeadAttention(2, 16, window=5, attention_dropout=0.5)
    layer.build((None, None, 16))

    @tf.function(input_signature=[tf.TensorSpec((None, None, 16))])
    def gradient(hidden):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(hidden, training=True) ** 2)
        return loss, tape.gradient(loss, layer.trainable_variables[0].value)

    hidden = RANDOM.normal(size=(2, 200, 16)).astype("float32")
    losses = {float(gradient(hidden)[0]) for _ in range(3)}
    assert len(losses) == 3
    assert np.isfinite(np.asarray(gradient(hidden)[1])).all()


def test_no_tensor_is_as_large_as_the_whole_matrix():
    reach, length = Reach(window=64), 4096
    function = tf.function(lambda *given: attend(*given, reach=reach)[0])
    graph = function.get_concrete_function(*tensors(length)).graph
    sizes = [np.prod(t.shape.as_list()) for op in graph.get_operations() for t in op.outputs]
    assert max(sizes) <= BATCH * HEADS * length * 3 * bands.block_length(reach)
