import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.training.optimizers import adamw
from keras_transformers.training.sampled_softmax import (
    OutputIsLoss,
    SampledSoftmax,
    draw_log_uniform,
    log_uniform_log_probability,
    sampled_crossentropy,
)

RANDOM = np.random.default_rng(0)
HIDDEN = RANDOM.normal(size=(5, 4)).astype("float32")
TARGETS = np.array([0, 3, 19, 3, 7], "int32")
KERNEL = RANDOM.normal(size=(20, 4)).astype("float32")
BIAS = RANDOM.normal(size=20).astype("float32")
LOGITS = HIDDEN.astype("float64") @ KERNEL.T + BIAS
EXACT = np.log(np.exp(LOGITS).sum(-1)) - LOGITS[np.arange(5), TARGETS]


def test_chances_are_those_of_tensorflows_sampler():
    log_probability = log_uniform_log_probability(np.arange(20), 20).numpy()
    assert np.exp(log_probability).sum() == pytest.approx(1, abs=1e-5)
    sampler = tf.random.log_uniform_candidate_sampler(
        true_classes=np.arange(20)[None], num_true=20, num_sampled=1, unique=False, range_max=20
    )
    np.testing.assert_allclose(np.exp(log_probability), sampler.true_expected_count[0], rtol=1e-5)


def test_draws_follow_their_chances():
    draws = np.asarray(draw_log_uniform(200_000, 20, keras.random.SeedGenerator(1)))
    assert draws.min() == 0
    assert draws.max() == 19
    shares = np.bincount(draws, minlength=20) / 200_000
    expected = np.exp(log_uniform_log_probability(np.arange(20), 20))
    np.testing.assert_allclose(shares, expected, atol=0.005)


def test_the_estimated_sum_is_right_on_average():
    """exp(loss) is the estimated sum over the target's term: its mean is the exact value."""
    draws = tf.reshape(draw_log_uniform(600 * 8, 20, keras.random.SeedGenerator(1)), (600, 8))
    loss = tf.function(lambda sample: sampled_crossentropy(HIDDEN, TARGETS, KERNEL, BIAS, sample))
    estimates = np.exp([loss(sample) for sample in draws])
    error = estimates.std(axis=0) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - np.exp(EXACT)) < 4 * error).all()
    assert (estimates.std(axis=0) > 0.1).any()


def test_a_large_sample_gives_the_exact_loss_and_gradient():
    draws = draw_log_uniform(100_000, 20, keras.random.SeedGenerator(2))
    hidden = tf.Variable(HIDDEN)
    with tf.GradientTape() as tape:
        losses = sampled_crossentropy(hidden, TARGETS, KERNEL, BIAS, draws)
    np.testing.assert_allclose(losses, EXACT, atol=0.03)
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    expected = (probabilities - np.eye(20)[TARGETS]) @ KERNEL
    np.testing.assert_allclose(tape.gradient(losses, hidden), expected, atol=0.03)


def test_the_target_is_no_draw_against_itself():
    """If only the target is drawn, only its own term is left, and the loss is 0."""
    losses = sampled_crossentropy(HIDDEN[:1], np.array([3]), KERNEL, BIAS, np.array([3, 3]))
    np.testing.assert_allclose(losses, 0, atol=1e-6)


def layer(seed, **options):
    softmax = SampledSoftmax(20, num_sampled=6, seed=seed, **options)
    softmax.build((None, None, 4), (None, None))
    softmax.set_weights([KERNEL, BIAS])
    return softmax


def test_draws_depend_on_the_seed_alone():
    inputs = HIDDEN[None], TARGETS[None]
    one, same, other = layer(1), layer(1), layer(2)
    first = one(*inputs, training=True)
    np.testing.assert_array_equal(first, same(*inputs, training=True))
    assert np.abs(first - other(*inputs, training=True)).max() > 1e-3
    second = one(*inputs, training=True)
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(second, same(*inputs, training=True))


def test_out_of_training_it_is_exact():
    losses = layer(1)(HIDDEN[None], TARGETS[None], training=False)
    assert losses.shape == (1, 5)
    np.testing.assert_allclose(losses[0], EXACT, atol=1e-5)


# One rounding: bfloat16 has 8 significant bits, float16 11.
STEP = {"mixed_bfloat16": 2.0**-8, "mixed_float16": 2.0**-11}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("policy", STEP)
def test_logits_and_losses_are_float32_under_a_mixed_policy(policy, training):
    """For vectors that 16 bits represent exactly, the losses are those of float32."""
    hidden = np.round(HIDDEN * 8) / 8
    exact = layer(1)(hidden[None], TARGETS[None], training=training)
    mixed = layer(1, dtype=policy)(hidden[None], TARGETS[None], training=training)
    assert mixed.dtype == "float32"
    np.testing.assert_allclose(mixed, exact, rtol=1e-6)


@functools.cache
def losses_of_updates(policy):
    """Returns losses of a model that predicts each next word from the last, on one batch."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(0)
    try:
        ids = keras.Input((None,), dtype="int32")
        hidden = keras.layers.Dense(4)(keras.layers.Embedding(20, 8)(ids[:, :-1]))
        losses = SampledSoftmax(20, num_sampled=6, seed=1)(hidden, ids[:, 1:])
        model = keras.Model(ids, {"losses": losses})
        model.compile(adamw(0.05), {"losses": OutputIsLoss()}, jit_compile=False)
    finally:
        keras.config.set_dtype_policy(before)
    texts = np.tile(np.arange(9) * 2, (6, 1)) + np.arange(6)[:, None] % 3
    targets = np.zeros((6, 8), "float32")
    history = model.fit(texts, {"losses": targets}, batch_size=6, epochs=12, verbose=0).history
    return np.array(history["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_drift_of_a_training(policy):
    exact, mixed = losses_of_updates("float32"), losses_of_updates(policy)
    assert exact[-1] < 0.8 * exact[0]
    np.testing.assert_allclose(mixed, exact, rtol=2 * STEP[policy])


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="num_sampled=0 of vocabulary_size=20"):
        SampledSoftmax(20, num_sampled=0)
    with pytest.raises(ValueError, match="vocabulary_size=1: draw.*words"):
        SampledSoftmax(1, num_sampled=4)
