import keras
import numpy as np
import pytest

from keras_transformers.evaluation.output_perplexity import OutputPerplexity


def test_batches_of_any_size_give_one_perplexity():
    random = np.random.default_rng(0)
    losses, weights = random.gamma(2, size=(7, 5)), random.integers(0, 2, (7, 5))
    metric = OutputPerplexity()
    for rows in (slice(0, 1), slice(1, 6), slice(6, 7)):
        metric.update_state(np.zeros_like(losses[rows]), losses[rows], weights[rows])
    expected = np.exp((losses * weights).sum() / weights.sum())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


def test_it_loads_without_custom_objects():
    config = keras.saving.serialize_keras_object(OutputPerplexity("words"))
    assert keras.saving.deserialize_keras_object(config).name == "words"
