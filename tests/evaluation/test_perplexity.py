"""Perplexity and token accuracy of tokens and texts."""

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.evaluation.perplexity import (
    LogProbabilityOfTokens,
    OutputPerplexity,
    Perplexity,
    TextPerplexity,
    TokenAccuracy,
)
from keras_transformers.training.losses import TokenCrossentropy

VOCABULARY = 7


def batches() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Two batches (targets, logits, weights) with different shapes and numbers of real tokens."""
    generator = np.random.default_rng(0)
    made = []
    for rows, length in ((2, 6), (4, 3)):
        targets = generator.integers(0, VOCABULARY, (rows, length))
        logits = generator.normal(scale=3, size=(rows, length, VOCABULARY)).astype("float32")
        lengths = generator.integers(1, length + 1, (rows, 1))
        made.append((targets, logits, (np.arange(length) < lengths).astype("float32")))
    return made


def real_tokens() -> tuple[np.ndarray, np.ndarray]:
    """Targets (n,) and log probabilities (n, VOCABULARY) of the real tokens of all batches."""
    targets, logits = [], []
    for batch_targets, batch_logits, weights in batches():
        targets.append(batch_targets[weights > 0])
        logits.append(batch_logits[weights > 0])
    return np.concatenate(targets), tf.nn.log_softmax(np.concatenate(logits)).numpy()


def test_perplexity_is_over_tokens_whatever_the_batches() -> None:
    perplexity = Perplexity()
    for targets, logits, weights in batches():
        perplexity.update_state(targets, logits, weights)
    targets, log_probabilities = real_tokens()
    expected = np.exp(-log_probabilities[np.arange(len(targets)), targets].mean())
    assert float(perplexity.result()) == pytest.approx(expected, rel=1e-5)
    perplexity.reset_state()
    assert np.isnan(float(perplexity.result()))


def test_token_accuracy_is_over_tokens_whatever_the_batches() -> None:
    accuracy = TokenAccuracy()
    for targets, logits, weights in batches():
        accuracy.update_state(targets, logits, weights)
    targets, log_probabilities = real_tokens()
    expected = (log_probabilities.argmax(-1) == targets).mean()
    assert 0 < expected < 1
    assert float(accuracy.result()) == pytest.approx(expected, rel=1e-6)


def test_of_equal_logits_the_first_is_the_largest() -> None:
    accuracy = TokenAccuracy()
    accuracy.update_state(np.array([[0, 1, 2, 3]]), np.zeros((1, 4, VOCABULARY)))
    assert float(accuracy.result()) == 0.25


def test_perplexity_of_a_uniform_guess_is_the_vocabulary() -> None:
    perplexity = Perplexity()
    perplexity.update_state(np.ones((2, 3), int), np.zeros((2, 3, VOCABULARY)))
    assert float(perplexity.result()) == pytest.approx(VOCABULARY, rel=1e-6)


def test_one_weight_per_sentence_is_refused() -> None:
    targets, logits, _ = batches()[0]
    with pytest.raises(ValueError, match=r"sample_weight of shape \(2,\) for targets.*\(2, 6\)"):
        Perplexity().update_state(targets, logits, np.ones(2))


def test_in_evaluate_they_agree_with_the_loss() -> None:
    """Batches have different lengths; label smoothing in the loss does not affect perplexity."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    logits = keras.layers.Embedding(VOCABULARY, VOCABULARY, name="logits")(token_ids)
    model = keras.Model({"token_ids": token_ids}, {"logits": logits})
    model.compile(
        loss=TokenCrossentropy(label_smoothing=0.3),
        weighted_metrics=[Perplexity(), TokenAccuracy()],
    )
    dataset = [({"token_ids": t}, t, w) for t, _, w in batches()]
    signature = (
        {"token_ids": tf.TensorSpec((None, None), tf.int32)},
        tf.TensorSpec((None, None), tf.int32),
        tf.TensorSpec((None, None), tf.float32),
    )
    results = model.evaluate(
        tf.data.Dataset.from_generator(lambda: iter(dataset), output_signature=signature),
        verbose=0,
        return_dict=True,
    )
    targets, _ = real_tokens()
    table = tf.nn.log_softmax(model.get_layer("logits").embeddings.numpy()).numpy()
    crossentropies = -table[targets, targets]
    assert results["perplexity"] == pytest.approx(np.exp(crossentropies.mean()), rel=1e-5)
    assert results["token_accuracy"] == pytest.approx(
        (table.argmax(-1) == np.arange(7))[targets].mean()
    )


@pytest.mark.parametrize(
    "metric", [Perplexity(name="p"), TokenAccuracy(name="a"), OutputPerplexity("words")]
)
def test_metrics_load_without_custom_objects(metric: Any) -> None:
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(metric)
    assert again.name == metric.name


def test_output_perplexity_is_over_tokens_whatever_the_batches() -> None:
    random = np.random.default_rng(0)
    losses, weights = random.gamma(2, size=(7, 5)), random.integers(0, 2, (7, 5))
    metric = OutputPerplexity()
    for rows in (slice(0, 1), slice(1, 6), slice(6, 7)):
        metric.update_state(np.zeros_like(losses[rows]), losses[rows], weights[rows])
    expected = np.exp((losses * weights).sum() / weights.sum())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


def test_the_three_figures_of_a_text() -> None:
    """In this text every byte costs 2 bits: 100 bytes in 25 tokens and 20 words."""
    figures = TextPerplexity(200 * math.log(2), num_tokens=25, num_words=20, num_bytes=100)
    assert figures.figures("model") == pytest.approx(
        {
            "model, perplexity per token": 2.0**8,
            "model, perplexity per word": 2.0**10,
            "model, bits per byte": 2.0,
        }
    )


def test_a_word_beyond_all_numbers() -> None:
    assert TextPerplexity(1e4, num_tokens=100, num_words=1, num_bytes=100).per_word == math.inf


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_measure_by_is_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must have at least 1 of each"):
        TextPerplexity(1.0, *counts)


def test_the_callback_adds_what_is_highest_where_perplexity_is_lowest() -> None:
    callback, logs = LogProbabilityOfTokens(), {"val_perplexity": math.e**2}
    callback.on_epoch_end(0, logs)
    assert logs["val_log_probability"] == pytest.approx(-2.0)
    with pytest.raises(ValueError, match="'val_perplexity' .*loss"):
        callback.on_epoch_end(0, {"loss": 1.0})
