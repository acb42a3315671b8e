"""The beam search of OpenNMT-tf, whose own predictions are in tests/convert/formats."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.decoding import beam_search

END = 2


def coin(token_ids, index, cache):  # 0 pad, 1 start, 2 end, 3 heads, 4 tails
    probabilities = tf.constant([0.0, 0.0, 0.5, 0.3, 0.2])
    return tf.tile(tf.math.log(probabilities)[None], [tf.shape(token_ids)[0], 1]), cache


def search(batch=1, **options):
    options = {
        "end_token_id": END,
        "max_length": 4,
        "num_beams": 3,
        "length_penalty": 0.0,
    } | options
    return beam_search(coin, [1] * batch, rules="opennmt", **options)


def test_finished_hypotheses_keep_their_places():
    found = search(2)
    assert found.token_ids[1].numpy().tolist() == [[2, 0, 0, 0], [3, 2, 0, 0], [4, 2, 0, 0]]
    assert found.lengths.numpy().tolist() == [[1, 2, 2]] * 2
    np.testing.assert_allclose(np.exp(found.scores[0]), [0.5, 0.15, 0.1], rtol=1e-5)
    assert found.finished.numpy().all()


def test_lengths_and_the_penalty_count():
    assert search(min_length=2).lengths.numpy().min() >= 2
    cut = search(min_length=2, max_length=2)
    assert not cut.finished.numpy().any()
    alpha = 2.0
    found = search(length_penalty=alpha)
    penalties = ((5 + found.lengths.numpy()) / 6) ** alpha
    steps = np.log([0.5, 0.3, 0.2])
    totals = [sum(steps[i - 2] for i in row if i) for row in found.token_ids[0].numpy()]
    np.testing.assert_allclose(found.scores[0] * penalties[0], totals, rtol=1e-5)


def test_texts_that_may_have_no_tokens_and_steps_that_are_told():
    told = []
    found = search(2, length_limits=[0, 4], on_step=told.append)
    assert found.lengths.numpy().tolist() == [[0, 0, 0], [1, 2, 2]]
    assert found.scores[0].numpy().tolist() == [0, -np.inf, -np.inf]
    assert told[-1].closed.numpy().all()
    assert len(told) == 2


def test_it_needs_an_end_token():
    with pytest.raises(ValueError, match="end_token_id=None"):
        search(end_token_id=None)
