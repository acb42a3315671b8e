"""Greedy search against a plain reference."""

from typing import Any

import numpy as np
import pytest
import reference_search as reference
import tensorflow as tf
from toy_models import PrefixModel

from keras_transformers.decoding import greedy_search

START, END = 1, 2


@pytest.mark.parametrize("min_length", [0, 1, 2, 4])
def test_agrees_with_a_plain_reference(min_length: int) -> None:
    model = PrefixModel(batch=60, vocabulary_size=4, depth=6, seed=min_length)
    limits = np.random.default_rng(0).integers(1, 9, model.batch)
    found = greedy_search(
        model.step,
        [START] * model.batch,
        model.cache,
        end_token_id=END,
        max_length=6,
        min_length=min_length,
        length_limits=limits,
    )
    for sentence, limit in enumerate(limits):
        max_length = min(int(limit), 6)
        expected = reference.greedy_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix),
            end=END,
            max_length=max_length,
            min_length=min(min_length, max_length),
        )
        length = len(expected.token_ids)
        assert found.lengths[sentence, 0] == length
        assert tuple(found.token_ids[sentence, 0, :length].numpy()) == expected.token_ids
        assert not found.token_ids[sentence, 0, length:].numpy().any()
        assert found.finished[sentence, 0] == expected.finished
        np.testing.assert_allclose(found.scores[sentence, 0], expected.score, atol=1e-5)


def test_stops_when_all_sentences_have_ended_and_feeds_padding_until_then() -> None:
    fed = []

    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        fed.append(token_ids.numpy().tolist())
        return tf.one_hot(token_ids - 1, 9), cache  # counts down

    found = greedy_search(step, [4, 8, 3], end_token_id=END, max_length=100, pad_token_id=5)
    assert fed == [[4, 8, 3], [3, 7, 2], [2, 6, 5], [5, 5, 5], [5, 4, 5], [5, 3, 5]]
    np.testing.assert_array_equal(found.lengths[:, 0], [2, 6, 1])
    np.testing.assert_array_equal(found.token_ids[0, 0, :4], [3, 2, 5, 5])


def test_equally_likely_tokens_the_smallest_id_wins() -> None:
    logits = np.zeros((1, 2000), np.float32)
    logits[0, [700, 1300, 1999]] = 1.0

    found = greedy_search(
        lambda token_ids, index, cache: (tf.constant(logits), cache),
        [0],
        end_token_id=None,
        max_length=1,
    )
    assert found.token_ids.numpy().ravel().tolist() == [700]
