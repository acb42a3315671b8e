"""Weights stored in bfloat16: half the space, the answers of the rounded weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy import Toy

import keras_transformers as kt
from keras_transformers.pipelines import Signature
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.storage import StoredWeights


@pytest.fixture
def model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(64, name="hidden")(inputs)
    outputs = keras.layers.Dense(64, name="outputs")(keras.layers.LayerNormalization()(hidden))
    model = keras.Model(inputs, outputs)
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    return model


def rounded(array):
    return tf.cast(tf.cast(array, tf.bfloat16), tf.float32).numpy()


def test_an_export_has_the_answers_of_the_rounded_matrices(model, tmp_path):
    x = np.random.default_rng(1).normal(size=(3, 8)).astype("float32")
    specs = {"x": tf.TensorSpec([None, 8], tf.float32)}, {"y": tf.TensorSpec([None, 64])}

    def call(x):
        return {"y": model(x, training=False)}

    pipeline = Toy(model, {"serving_default": Signature(call, *specs, [{"x": x}])})
    sizes, answers = {}, {}
    for dtype in ("float32", "bfloat16"):
        folder = kt.export(pipeline, tmp_path / dtype, weights_dtype=dtype, check=False)
        assert list(check.failures(str(folder))) == []
        signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
        answers[dtype] = signature(x=tf.constant(x))["y"].numpy()
        sizes[dtype] = (folder / "variables/variables.data-00000-of-00001").stat().st_size
    matrices = (8 + 64) * 64
    assert sizes["float32"] - sizes["bfloat16"] == pytest.approx(2 * matrices, abs=600)
    np.testing.assert_allclose(answers["float32"], model(x), atol=1e-5)
    assert np.abs(answers["bfloat16"] - answers["float32"]).max() > 1e-3
    own = model.get_weights()
    model.set_weights([rounded(w) if w.ndim > 1 else w for w in own])
    np.testing.assert_allclose(answers["bfloat16"], model(x), atol=1e-5)


def test_the_model_keeps_its_weights(model):
    own = model.get_weights()
    stored = StoredWeights(model.weights, "bfloat16")
    read = stored.reading(lambda x: {"y": model(x)})
    difference = read(x=tf.ones((1, 8)))["y"] - model(tf.ones((1, 8)))
    assert np.abs(difference).max() > 1e-3
    for weight, array in zip(model.get_weights(), own, strict=True):
        np.testing.assert_array_equal(weight, array)
    halves = [variable.dtype for variable in stored.variables]
    assert halves.count(tf.bfloat16) == 2, "the matrices; biases, gains and shifts stay"
    assert halves.count(tf.float32) == 4


def test_float32_is_left_alone(model):
    def function(x):
        return {"y": x}

    stored = StoredWeights(model.weights)
    assert stored.reading(function) is function
    assert all(a is b.value for a, b in zip(stored.variables, model.weights, strict=True))


def test_other_dtypes_are_refused(model):
    with pytest.raises(ValueError, match="'int4': use 'float32', 'bfloat16' or 'int8'"):
        StoredWeights(model.weights, "int4")
