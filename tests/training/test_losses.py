"""Token cross-entropy: equal to its one-hot definition, in value and gradient."""

import os
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformers.training.losses import TokenCrossentropy, token_crossentropy

BATCH, LENGTH, VOCABULARY = 3, 5, 11


@pytest.fixture
def logits() -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(scale=4, size=(BATCH, LENGTH, VOCABULARY)).astype("float32")


@pytest.fixture
def targets() -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, LENGTH))


def one_hot_definition(targets: Any, logits: Any, label_smoothing: float) -> Any:
    """Returns cross-entropy with dense targets, in float64, by one formula."""
    wanted = tf.one_hot(targets, VOCABULARY, dtype="float64") * (1 - label_smoothing)
    wanted += label_smoothing / VOCABULARY
    return -tf.reduce_sum(wanted * tf.nn.log_softmax(tf.cast(logits, "float64")), axis=-1)


def value_and_gradient(function: Any, logits: Any) -> tuple[np.ndarray, Any]:
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = function(logits)
        # Unequal weights, so that a lost upstream gradient shows.
        weights = tf.cast(tf.range(1, tf.size(losses) + 1), losses.dtype)
        total = tf.reduce_sum(tf.reshape(losses, [-1]) * weights)
    return losses.numpy(), tape.gradient(total, logits)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("compiled", [False, True])
def test_equals_the_one_hot_definition(
    targets: np.ndarray, logits: np.ndarray, label_smoothing: float, compiled: bool
) -> None:
    def ours(logits: Any) -> Any:
        return token_crossentropy(targets, logits, label_smoothing=label_smoothing)

    expected, expected_gradient = value_and_gradient(
        lambda logits: one_hot_definition(targets, logits, label_smoothing), logits
    )
    losses, gradient = value_and_gradient(tf.function(ours) if compiled else ours, logits)
    np.testing.assert_allclose(losses, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5)
    keras_loss = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=label_smoothing, reduction=None
    )
    np.testing.assert_allclose(losses, keras_loss(np.eye(VOCABULARY)[targets], logits), rtol=1e-5)


def test_runs_under_xla(targets: np.ndarray, logits: np.ndarray) -> None:
    function = tf.function(
        lambda logits: token_crossentropy(targets, logits, label_smoothing=0.1), jit_compile=True
    )
    expected, expected_gradient = value_and_gradient(
        lambda logits: one_hot_definition(targets, logits, 0.1), logits
    )
    losses, gradient = value_and_gradient(function, logits)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_bfloat16_logits_are_computed_in_float32(targets: np.ndarray, logits: np.ndarray) -> None:
    rounded = tf.cast(logits, "bfloat16")
    expected, expected_gradient = value_and_gradient(
        lambda logits: one_hot_definition(targets, logits, 0.1), rounded
    )
    losses, gradient = value_and_gradient(
        lambda logits: token_crossentropy(targets, logits, label_smoothing=0.1), rounded
    )
    assert losses.dtype == np.float32
    np.testing.assert_allclose(losses, expected, rtol=2e-6, atol=2e-6)
    assert gradient.dtype == tf.bfloat16
    np.testing.assert_array_equal(
        tf.cast(gradient, "float32"),
        tf.cast(tf.cast(tf.cast(expected_gradient, "float32"), "bfloat16"), "float32"),
    )


def test_extreme_logits() -> None:
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, 1e4]], "float32")
    losses = token_crossentropy(np.array([1, 0, 2]), logits)
    np.testing.assert_allclose(losses, [2e4, np.log(3), np.log(3)], rtol=1e-6)


def test_nan_logits_give_a_nan_loss(targets: np.ndarray, logits: np.ndarray) -> None:
    """NaN must reach the loss of that token, and of no other."""
    logits[1, 2, 3] = np.nan
    losses = ops.convert_to_numpy(token_crossentropy(targets, logits))
    np.testing.assert_array_equal(np.argwhere(np.isnan(losses)), [[1, 2]])


def test_no_one_hot_vocabulary_is_built(targets: np.ndarray, logits: np.ndarray) -> None:
    @tf.function
    def gradient(logits: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = TokenCrossentropy(label_smoothing=0.1)(targets, logits)
        return tape.gradient(loss, logits)

    graph = gradient.get_concrete_function(tf.constant(logits)).graph
    assert not [op.name for op in graph.get_operations() if "OneHot" in op.type]


def test_bad_arguments(targets: np.ndarray, logits: np.ndarray) -> None:
    for value in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"label_smoothing is {value}"):
            TokenCrossentropy(label_smoothing=value)
    with pytest.raises(ValueError, match=r"\(3, 5, 1\).*shape"):
        token_crossentropy(targets[..., None], logits)


def test_a_token_beyond_the_vocabulary_fails(logits: np.ndarray) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"not in \[0, {VOCABULARY}\)"):
        token_crossentropy(np.full((BATCH, LENGTH), VOCABULARY), logits)


def test_padding_and_uneven_batches_change_nothing(targets: np.ndarray, logits: np.ndarray) -> None:
    """The loss of a padded batch of three lengths is the mean over its nine real tokens."""
    loss = TokenCrossentropy(label_smoothing=0.1)
    lengths = np.array([5, 1, 3])
    weights = (np.arange(LENGTH) < lengths[:, None]).astype("float32")
    each = one_hot_definition(targets, logits, 0.1).numpy()
    real = np.concatenate([each[row, :length] for row, length in enumerate(lengths)])
    assert float(loss(targets, logits, weights)) == pytest.approx(real.mean(), rel=1e-6)

    pad_targets = np.pad(targets, [(0, 1), (0, 4)])
    pad_logits = np.pad(logits, [(0, 1), (0, 4), (0, 0)], constant_values=7.0)
    pad_weights = np.pad(weights, [(0, 1), (0, 4)])
    padded = loss(pad_targets, pad_logits, pad_weights)
    assert float(padded) == pytest.approx(real.mean(), rel=1e-6)
    assert float(loss(targets, logits, 0 * weights)) == 0.0
    summed = TokenCrossentropy(label_smoothing=0.1, reduction="sum")
    assert float(summed(targets, logits, weights)) == pytest.approx(real.sum(), rel=1e-6)


def test_ids_above_256_survive_bfloat16() -> None:
    keras.config.set_floatx("bfloat16")
    try:
        logits = np.zeros((1, 1, 1000), "float32")
        logits[0, 0, 777] = 50.0  # 777 would be 776 in bfloat16
        assert float(TokenCrossentropy()(np.array([[777]]), logits)) == pytest.approx(0.0, abs=1e-6)
    finally:
        keras.config.set_floatx("float32")


def dictionary_model() -> keras.Model:
    """Returns a model from token ids to {"logits"}, like ours."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = keras.layers.Embedding(VOCABULARY, 4)(token_ids)
    outputs = {"logits": keras.layers.Dense(VOCABULARY, name="logits")(hidden)}
    return keras.Model({"token_ids": token_ids}, outputs)


@pytest.mark.parametrize("in_dictionary", [False, True])
def test_compiles_with_outputs_in_a_dictionary(targets: np.ndarray, in_dictionary: bool) -> None:
    model = dictionary_model()
    loss = TokenCrossentropy(label_smoothing=0.1)
    model.compile("adam", {"logits": loss} if in_dictionary else loss, jit_compile=False)
    weights = np.ones((BATCH, LENGTH), "float32")
    weights[1:, 2:] = 0
    logits = model({"token_ids": targets})["logits"]
    expected = (one_hot_definition(targets, logits, 0.1).numpy() * weights).sum() / weights.sum()
    wanted = ({"logits": targets}, {"logits": weights}) if in_dictionary else (targets, weights)
    dataset = tf.data.Dataset.from_tensors(({"token_ids": targets}, *wanted))
    assert model.evaluate(dataset, verbose=0) == pytest.approx(expected, rel=1e-5)
    assert model.fit(dataset, epochs=3, verbose=0).history["loss"][-1] < expected


def test_saves_and_loads_with_the_model(tmp_path: Any, targets: np.ndarray) -> None:
    model = dictionary_model()
    model.compile("adam", TokenCrossentropy(label_smoothing=0.2), jit_compile=False)
    model.fit({"token_ids": targets}, targets, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.label_smoothing == 0.2
    assert loaded.loss.reduction == "mean_with_sample_weight"
    assert loaded.evaluate({"token_ids": targets}, targets, verbose=0) == pytest.approx(
        model.evaluate({"token_ids": targets}, targets, verbose=0), rel=1e-5
    )


ON_JAX = """
import sys
import jax, jax.numpy as jnp, keras, numpy as np
from keras_transformers.training.averaging import AverageLastWeights
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.evaluation.perplexity import Perplexity, TokenAccuracy
assert "tensorflow" not in sys.modules, "TensorFlow was imported"
generator = np.random.default_rng(0)
logits = jnp.asarray(generator.normal(size=(2, 3, 7)), jnp.float32)
targets, weights = generator.integers(0, 7, (2, 3)), np.float32([[1, 1, 1], [1, 0, 0]])
def expected(logits):
    wanted = jax.nn.one_hot(targets, 7) * 0.9 + 0.1 / 7
    return (weights * -(wanted * jax.nn.log_softmax(logits)).sum(-1)).sum() / weights.sum()
loss = lambda logits: TokenCrossentropy(label_smoothing=0.1)(targets, logits, weights)
np.testing.assert_allclose(loss(logits), expected(logits), rtol=1e-5)
np.testing.assert_allclose(
    jax.jit(jax.grad(loss))(logits), jax.grad(expected)(logits), rtol=1e-4, atol=1e-6)
model = keras.Sequential([keras.layers.Embedding(7, 8), keras.layers.Dense(7)])
model.compile("adam", TokenCrossentropy(), weighted_metrics=[Perplexity(), TokenAccuracy()])
averaging = AverageLastWeights()
history = model.fit(
    targets, targets, sample_weight=weights, epochs=2, verbose=0, callbacks=[averaging]).history
np.testing.assert_allclose(np.exp(history["loss"]), history["perplexity"], rtol=1e-5)
assert len(averaging) == 2
"""


@pytest.mark.slow
def test_runs_on_jax_without_tensorflow() -> None:
    pytest.importorskip("jax")
    environment = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, "-c", ON_JAX], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
