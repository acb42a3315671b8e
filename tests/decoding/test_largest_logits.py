"""The shortcuts through a large vocabulary find exactly the same as a full search."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.decoding.largest_logits import best_continuations, in_blocks, log_normalizer

pytestmark = pytest.mark.kernels

# One block; even blocks; a prime (padded); 2 * a prime (padded); GPT-2's odd size.
VOCABULARY_SIZES = [1, 5, 512, 1009, 1018, 5025]


@pytest.mark.parametrize("vocabulary_size", VOCABULARY_SIZES)
@pytest.mark.parametrize("ties", [False, True])
def test_best_continuations_are_those_of_one_top_k(vocabulary_size: int, ties: bool) -> None:
    random = np.random.default_rng(vocabulary_size)
    batch, num_beams, count = 3, 4, 8
    logits = random.normal(size=(batch * num_beams, vocabulary_size)).astype(np.float32) * 3
    offsets = random.normal(size=(batch, num_beams)).astype(np.float32)
    if ties:
        logits, offsets = logits.round(), offsets.round()
    offsets[1, 2] = -np.inf
    found = best_continuations(tf.constant(offsets), in_blocks(tf.constant(logits)), count)

    scores = logits.reshape(batch, num_beams, -1) + offsets[:, :, None]
    scores = scores.reshape(batch, -1)
    count = min(count, scores.shape[1])
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(
        found.scores[:, :count], np.take_along_axis(scores, expected, axis=1)
    )
    possible = found.scores[:, :count] > -np.inf
    np.testing.assert_array_equal(
        found.beams[:, :count][possible], (expected // vocabulary_size)[possible]
    )
    np.testing.assert_array_equal(
        found.token_ids[:, :count][possible], (expected % vocabulary_size)[possible]
    )
    np.testing.assert_array_equal(found.scores[:, count:], -np.inf)


@pytest.mark.parametrize("vocabulary_size", VOCABULARY_SIZES)
@pytest.mark.parametrize(
    ("scale", "jit_compile"),
    [(0.0, False), (1.0, False), (30.0, False), (1000.0, False), (30.0, True)],
)
def test_log_normalizer_is_log_sum_exp(
    vocabulary_size: int, scale: float, jit_compile: bool
) -> None:
    random = np.random.default_rng(1)
    logits = (random.normal(size=(7, vocabulary_size)) * scale).astype(np.float32)
    logits[0, 1:] = -np.inf
    found = tf.function(lambda logits: log_normalizer(in_blocks(logits)), jit_compile=jit_compile)(
        logits
    )
    exact = logits.astype(np.float64)
    largest = exact.max(axis=1, keepdims=True)
    exact = largest[:, 0] + np.log(np.exp(exact - largest).sum(axis=1))
    np.testing.assert_allclose(found, exact, rtol=3e-7, atol=3e-6)
