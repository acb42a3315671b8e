"""Accumulated gradients: the update of the whole batch, however it is divided."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.static_shapes import filled
from keras_transformers.evaluation.perplexity import Perplexity
from keras_transformers.training.distributed import prepare
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adamw

RNG = np.random.default_rng(0)
ROWS, LENGTH, VOCABULARY = 7, 5, 11
TOKENS = RNG.integers(0, VOCABULARY, (ROWS, LENGTH))
LENGTHS = np.array([5, 1, 4, 2, 5, 1, 3])  # so parts have different numbers of tokens
WEIGHTS = (np.arange(LENGTH) < LENGTHS[:, None]).astype("float32")


def build(optimizer, *, regularizer=None, loss_weights=None):
    keras.utils.set_random_seed(0)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    vectors = keras.layers.Embedding(VOCABULARY, 6, name="vectors")(token_ids)
    hidden = keras.layers.Dense(6, activation="tanh", kernel_regularizer=regularizer)(vectors)
    outputs = {
        "logits": keras.layers.Dense(VOCABULARY, name="logits")(hidden),
        "label": keras.layers.Dense(2, name="label")(keras.ops.mean(hidden, axis=1)),
    }
    model = keras.Model({"token_ids": token_ids}, outputs)
    model.compile(
        optimizer,
        loss={
            "logits": TokenCrossentropy(),
            "label": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        },
        loss_weights=loss_weights,
        weighted_metrics={"logits": [Perplexity()], "label": ["accuracy"]},
        jit_compile=False,
    )
    return model


def data():
    targets = {"logits": TOKENS[:, ::-1].copy(), "label": TOKENS[:, 0] % 2}
    weights = {"logits": WEIGHTS, "label": np.ones(ROWS, "float32")}
    batch = ({"token_ids": TOKENS}, targets, weights)
    return tf.data.Dataset.from_tensors(batch)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adamw": lambda: adamw(1e-2, clip_norm=0.1),
}
OPTIONS = {
    "regularizer": keras.regularizers.L2(0.1),
    "loss_weights": {"logits": 2.0, "label": 0.3},
}


@functools.cache
def fitted(num_parts, optimizer):
    """Returns a model after three updates, and the logs of each; do not change them."""
    model = build(OPTIMIZERS[optimizer](), **OPTIONS)
    prepare(model, accumulate=num_parts)
    logs = model.fit(data(), epochs=3, verbose=0).history
    return model, logs


@pytest.mark.parametrize(
    ("num_parts", "optimizer"),
    [
        (2, "sgd"),
        pytest.param(3, "adamw", marks=pytest.mark.slow),
        pytest.param(7, "sgd", marks=pytest.mark.slow),
        pytest.param(9, "adamw", marks=pytest.mark.slow),
    ],
)
def test_the_update_is_that_of_the_whole_batch(num_parts, optimizer):
    """Seven rows in 2, 3 or 7 parts; of 9 parts two are left out."""
    whole, expected = fitted(1, optimizer)
    parts, found = fitted(num_parts, optimizer)
    assert int(parts.optimizer.iterations) == 3
    for a, b in zip(whole.get_weights(), parts.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)


def test_equal_weights_for_parts_would_be_wrong():
    """Keras' `gradient_accumulation_steps` in small: the test above would notice it."""
    whole, _ = fitted(1, "sgd")
    model = build(OPTIMIZERS["sgd"](), **OPTIONS)
    for _ in range(3):
        before = model.get_weights()
        changes = []
        for rows in (slice(0, 4), slice(4, 7)):
            model.set_weights(before)
            batch = tf.nest.map_structure(lambda array, rows=rows: array[rows], next(iter(data())))
            model.train_on_batch(*batch)
            changes.append([a - b for a, b in zip(model.get_weights(), before, strict=True)])
        mean = [sum(parts) / 2 for parts in zip(*changes, strict=True)]
        model.set_weights([a + b for a, b in zip(before, mean, strict=True)])
    differences = zip(whole.get_weights(), model.get_weights(), strict=True)
    assert max(np.abs(a - b).max() for a, b in differences) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("num_parts", [1, 2])
def test_rows_that_fill_up_a_batch_change_nothing(num_parts):
    """Nor losses with either reduction, nor regularization, metrics and logs, nor validation."""
    batches = data().unbatch().batch(4)
    fixed = batches.map(lambda *batch: filled(batch, 4))
    found, expected = (build(OPTIMIZERS["sgd"](), **OPTIONS) for _ in range(2))
    prepare(found, accumulate=num_parts, static_shapes=True)
    logs, expected_logs = (
        model.fit(part, validation_data=part, epochs=2, verbose=0).history
        for model, part in ((found, fixed), (expected, batches))
    )
    assert logs.keys() == expected_logs.keys()
    for name, values in expected_logs.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-5, err_msg=name)
    for a, b in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_a_batch_without_weight_changes_nothing():
    model = build(keras.optimizers.SGD(0.5))
    prepare(model, accumulate=2)
    before = model.get_weights()
    inputs, targets, weights = next(iter(data()))
    weights = {name: 0.0 * weight for name, weight in weights.items()}
    logs = model.fit(tf.data.Dataset.from_tensors((inputs, targets, weights)), verbose=0).history
    assert logs["loss"] == [0.0]
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_without_weights_and_with_a_layer_that_no_loss_sees():
    """Variables without a gradient are not decayed, as in Keras."""
    results = []
    for num_parts in (1, 3):
        keras.utils.set_random_seed(0)
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        vectors = keras.layers.Embedding(VOCABULARY, 6)(token_ids)
        outputs = {
            "logits": keras.layers.Dense(VOCABULARY)(vectors),
            "unused": keras.layers.Dense(2)(vectors),
        }
        model = keras.Model({"token_ids": token_ids}, outputs)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(adamw(1e-2), loss={"logits": loss}, jit_compile=False)
        prepare(model, accumulate=num_parts)
        batch = ({"token_ids": TOKENS}, {"logits": TOKENS[:, ::-1].copy()})
        model.fit(tf.data.Dataset.from_tensors(batch), epochs=2, verbose=0)
        results.append(model.get_weights())
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_validation_goes_as_before():
    whole, _ = fitted(1, "sgd")
    parts, _ = fitted(2, "sgd")
    scores = parts.evaluate(data(), return_dict=True, verbose=0)
    for name, value in whole.evaluate(data(), return_dict=True, verbose=0).items():
        assert scores[name] == pytest.approx(value, rel=1e-5), name


def test_what_cannot_be_accumulated():
    model = build(keras.optimizers.SGD(0.5))
    with pytest.raises(ValueError, match="accumulate=0"):
        prepare(model, accumulate=0)
    model.compile("sgd", loss={"logits": TokenCrossentropy(reduction="sum"), "label": None})
    with pytest.raises(ValueError, match="dict from its outputs"):
        prepare(model, accumulate=2)
    model.compile("sgd", loss={"logits": TokenCrossentropy(reduction="sum")})
    with pytest.raises(ValueError, match="'logits'.*reduction='sum'"):
        prepare(model, accumulate=2)
