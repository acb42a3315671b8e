"""R-Drop: the divergence of two passes, its gradient, and training with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.training.distributed import prepare
from keras_transformers.training.losses import TokenCrossentropy, token_crossentropy
from keras_transformers.training.r_drop import r_drop_loss, symmetric_divergence

RNG = np.random.default_rng(0)
ROWS, LENGTH, VOCABULARY = 6, 4, 9
TOKENS = RNG.integers(0, VOCABULARY, (ROWS, LENGTH))
WEIGHTS = (np.arange(LENGTH) < np.array([4, 1, 3, 2, 4, 1])[:, None]).astype("float32")
PAIR = RNG.normal(size=(2, 3, VOCABULARY)).astype("float32")


def written_out(first, second):
    """Both divergences as their definition has them."""
    log_p, log_q = tf.nn.log_softmax(first), tf.nn.log_softmax(second)
    forth = tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)
    return forth + tf.reduce_sum(tf.exp(log_q) * (log_q - log_p), axis=-1)


def test_the_divergence_and_its_gradient_are_those_of_the_definition():
    results = []
    for divergence in (symmetric_divergence, written_out):
        logits = [tf.constant(array) for array in PAIR]
        with tf.GradientTape() as tape:
            tape.watch(logits)
            values = divergence(*logits)
            total = tf.reduce_sum(values * [1.0, -2.0, 3.0])
        results.append([values, *tape.gradient(total, logits)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_loss_is_half_of_the_papers():
    targets = np.array([1, 2, 3])
    first, second = PAIR
    found = r_drop_loss(TokenCrossentropy(label_smoothing=0.1), targets, first, second, 5.0)
    likelihoods = sum(token_crossentropy(targets, x, label_smoothing=0.1) for x in PAIR)
    paper = likelihoods + 5.0 * 0.5 * written_out(first, second)
    np.testing.assert_allclose(found, paper / 2, rtol=1e-5)


def build(*, dropout, loss=None):
    keras.utils.set_random_seed(0)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = keras.layers.Embedding(VOCABULARY, 8)(token_ids)
    hidden = keras.layers.Dropout(dropout)(hidden)
    model = keras.Model(
        {"token_ids": token_ids}, {"logits": keras.layers.Dense(VOCABULARY)(hidden)}
    )
    model.compile(
        keras.optimizers.SGD(0.5), loss={"logits": loss or TokenCrossentropy()}, jit_compile=False
    )
    return model


def fitted(*, dropout, epochs=3, **options):
    model = build(dropout=dropout)
    prepare(model, **options)
    batch = ({"token_ids": TOKENS}, {"logits": TOKENS[:, ::-1].copy()}, {"logits": WEIGHTS})
    dataset = tf.data.Dataset.from_tensors(batch)
    return model, model.fit(dataset, epochs=epochs, verbose=0).history["loss"]


def test_without_dropout_both_passes_agree_and_nothing_changes():
    plain, expected = fitted(dropout=0.0)
    for parts in (1, 4):
        twice, found = fitted(dropout=0.0, r_drop=5.0, accumulate=parts)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for a, b in zip(plain.get_weights(), twice.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_passes_agree_more_after_training_with_it():
    def disagreement(**options):
        model, _ = fitted(dropout=0.5, epochs=150, **options)
        keras.utils.set_random_seed(1)
        many = {"token_ids": np.tile(TOKENS, (50, 1))}
        first, second = (model(many, training=True)["logits"] for _ in range(2))
        return float(tf.reduce_mean(symmetric_divergence(first, second)))

    assert disagreement(r_drop=5.0) < 0.5 * disagreement()


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_an_impossible_weight_is_refused(weight):
    with pytest.raises(ValueError, match="r_drop=.*0 or more"):
        prepare(build(dropout=0.1), r_drop=weight)


def test_another_loss_is_refused():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with pytest.raises(ValueError, match="'logits' is SparseCategoricalCrossentropy.*r_drop=0"):
        prepare(build(dropout=0.1, loss=loss), r_drop=1.0)
