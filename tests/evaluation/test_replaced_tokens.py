"""The loss and the metrics of ELECTRA's discriminator."""

import keras
import numpy as np
import pytest

from keras_transformers.evaluation import (
    ReplacedTokenAccuracy,
    ReplacedTokenPrecision,
    ReplacedTokenRecall,
    ReplacedTokenShare,
)
from keras_transformers.training import ReplacedTokenCrossentropy

METRICS = {
    "share": ReplacedTokenShare(),
    "accuracy": ReplacedTokenAccuracy(),
    "precision": ReplacedTokenPrecision(name="precision"),
    "recall": ReplacedTokenRecall(name="recall"),
}
IDS = 40_000  # beyond what half precision holds


@pytest.fixture(scope="module")
def case():
    """Original ids, judgements, weights; and as flat arrays of real tokens: labels and logits."""
    random = np.random.default_rng(0)
    original = random.integers(IDS - 3, IDS, (5, 20))
    seen = random.integers(IDS - 3, IDS, (5, 20))
    logits = random.normal(size=(5, 20))
    weights = np.arange(20)[None] < random.integers(3, 21, (5, 1))
    judged = np.stack([logits, seen], axis=-1).astype("float32")
    return original, judged, weights.astype("float32"), (original != seen)[weights], logits[weights]


def test_metrics_are_over_real_tokens_whatever_the_batches(case):
    original, judged, weights, labels, logits = case
    called = logits > 0
    expected = {
        "share": labels.mean(),
        "accuracy": (labels == called).mean(),
        "precision": labels[called].mean(),
        "recall": called[labels].mean(),
    }
    for name, metric in METRICS.items():
        metric.reset_state()
        for rows in (slice(0, 1), slice(1, 5)):
            metric.update_state(original[rows], judged[rows], weights[rows])
        assert float(metric.result()) == pytest.approx(expected[name], abs=1e-6), name


def test_the_loss_is_the_mean_over_real_tokens(case):
    original, judged, weights, labels, logits = case
    found = ReplacedTokenCrossentropy()(original, judged, sample_weight=weights)
    chance = 1 / (1 + np.exp(-logits))
    expected = -np.mean(np.where(labels, np.log(chance), np.log(1 - chance)))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_extreme_logits_have_finite_losses():
    judged = np.array([[[1e4, 1], [-1e4, 1], [1e4, 2], [-1e4, 2]]], "float32")
    losses = ReplacedTokenCrossentropy(reduction=None)(np.ones((1, 4), "int32"), judged)
    np.testing.assert_array_equal(losses, [[1e4, 0, 0, 1e4]])


@pytest.mark.parametrize("thing", [*METRICS.values(), ReplacedTokenCrossentropy(name="l")])
def test_they_load_without_custom_objects(thing):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(thing))
    assert (type(again), again.name) == (type(thing), thing.name)
