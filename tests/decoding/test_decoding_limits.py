"""Nothing to generate, empty batches, and invalid arguments."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from toy_models import PrefixModel

from keras_transformers.decoding import Hypotheses, beam_search, greedy_search, sample

START, END = 1, 2
SEARCHES = {
    "greedy": greedy_search,
    "beam 1": lambda *args, **options: beam_search(*args, num_beams=1, **options),
    "beam 3": lambda *args, **options: beam_search(*args, num_beams=3, **options),
    "sample": lambda *args, **options: sample(*args, seed=1, **options),
    "sample 3": lambda *args, **options: sample(*args, seed=1, num_hypotheses=3, **options),
}
every_search = pytest.mark.parametrize("name", SEARCHES)


def slots(name: str) -> int:
    return 3 if name.endswith("3") else 1


@every_search
def test_zero_length(name: str) -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        raise AssertionError("nothing to generate, nothing to feed")

    found = SEARCHES[name](step, [1, 1], end_token_id=END, max_length=0)
    assert found.token_ids.shape == (2, slots(name), 0)
    np.testing.assert_array_equal(found.scores[:, 0], [0.0, 0.0])
    if name == "beam 3":  # one empty text, but no second or third
        np.testing.assert_array_equal(found.scores[:, 1:], np.full((2, 2), -np.inf))
    assert not found.finished.numpy().any()
    assert not found.lengths.numpy().any()


@every_search
def test_empty_batch(name: str) -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        return tf.one_hot(token_ids, 7), cache

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def run(starts: Any) -> Hypotheses:
        cache = tf.zeros((tf.shape(starts)[0], 3))
        return SEARCHES[name](step, starts, cache, end_token_id=END, max_length=5)

    found = run([])
    assert found.token_ids.shape == (0, slots(name), 5)
    for field in (found.scores, found.lengths, found.finished):
        assert field.shape == (0, slots(name))
    assert run([1, 1]).token_ids.shape == (2, slots(name), 5)


@every_search
def test_length_limits_and_a_maximum_known_only_when_run(name: str) -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        return tf.tile([[0.0, 0.0, -np.inf, 9.0, 1.0]], [tf.shape(token_ids)[0], 1]), cache

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def run(limits: Any) -> Hypotheses:
        starts = tf.ones_like(limits)
        return SEARCHES[name](
            step,
            starts,
            end_token_id=END,
            max_length=tf.reduce_max(limits),
            length_limits=limits,
            pad_token_id=4,
        )

    found = run([3, 0, 1])
    assert found.token_ids.shape == (3, slots(name), 3)
    first = found.token_ids[:, 0]
    if not name.startswith("sample"):
        np.testing.assert_array_equal(first, [[3, 3, 3], [4, 4, 4], [3, 4, 4]])
    np.testing.assert_array_equal(found.lengths[:, 0], [3, 0, 1])
    np.testing.assert_array_equal(first[1], [4, 4, 4])
    np.testing.assert_array_equal(first[2, 1:], [4, 4])
    assert run([2]).token_ids.shape == (1, slots(name), 2)


@every_search
def test_no_end_token(name: str) -> None:
    model = PrefixModel(batch=2, vocabulary_size=3, depth=4, seed=0)
    found = SEARCHES[name](model.step, [1, 1], model.cache, end_token_id=None, max_length=4)
    np.testing.assert_array_equal(found.lengths, np.full((2, slots(name)), 4))
    assert not found.finished.numpy().any()


@every_search
def test_everything_forbidden_leaves_an_empty_slot(name: str) -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        tf.debugging.assert_less(token_ids, 3)  # fed tokens stay inside the vocabulary
        logits = tf.constant([[-np.inf, -np.inf, 0.0]])
        return tf.tile(logits, [tf.shape(token_ids)[0], 1]), cache

    found = SEARCHES[name](step, [1], end_token_id=END, max_length=4, min_length=2)
    assert not found.finished.numpy().any()
    np.testing.assert_array_equal(found.scores, np.full((1, slots(name)), -np.inf))
    np.testing.assert_array_equal(found.lengths, np.zeros((1, slots(name))))
    np.testing.assert_array_equal(found.token_ids, np.zeros((1, slots(name), 4)))


SHARED = [
    ({"max_length": -1}, "max_length=-1"),
    ({"max_length": 2.5}, "max_length=2.5"),
    ({"min_length": 6}, "min_length=6 .* max_length=5"),
    ({"min_length": -1}, "min_length=-1"),
    ({"end_token_id": 4}, "end_token_id=4 is outside the vocabulary.* 4 columns"),
    ({"pad_token_id": -1}, "pad_token_id=-1 is outside"),
    ({"length_limits": [1, 2]}, "length_limits has shape"),
    ({"growing_axis": 0}, "growing_axis=0"),
    ({"growing_axis": 1}, "growing_axis=1"),
]
BEAM = [
    ({"num_beams": 0}, "num_beams=0"),
    ({"num_beams": 2, "num_hypotheses": 3}, "num_hypotheses=3 .* num_beams=2"),
    ({"num_hypotheses": 0}, "num_hypotheses=0"),
    ({"length_penalty": -0.1}, "length_penalty=-0.1"),
    ({"length_penalty": float("nan")}, "length_penalty=nan"),
    ({"rules": "beam"}, "rules='beam': use 'gnmt' or 'transformers'"),
]
SAMPLE = [
    ({"num_hypotheses": 0}, "num_hypotheses=0"),
    ({"temperature": 0.0}, "temperature=0.0 .* greedy_search"),
    ({"temperature": -1.0}, "temperature=-1.0"),
    ({"temperature": float("nan")}, "temperature=nan"),
    ({"top_k": 0}, "top_k=0"),
    ({"top_k": 5}, "top_k=5 is more than the 4 tokens"),
    ({"top_p": 0.0}, "top_p=0.0"),
    ({"top_p": 1.1}, "top_p=1.1"),
    ({"top_p": float("nan")}, "top_p=nan"),
]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, *case) for name in SEARCHES for case in SHARED]
    + [("beam", *case) for case in BEAM]
    + [("sample", *case) for case in SAMPLE],
)
def test_bad_arguments_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    model = PrefixModel(batch=1, vocabulary_size=4, depth=2, seed=0)
    search = beam_search if name == "beam" else SEARCHES[name]
    if name == "sample" and (options, message) in SAMPLE:
        options = {"seed": 1, **options}
        search = sample
    options = {"end_token_id": END, "max_length": 5, **options}
    with pytest.raises(ValueError, match=message):
        search(model.step, [START], model.cache, **options)


@every_search
def test_bad_shapes_are_refused(name: str) -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        return tf.zeros((token_ids.shape[0], 1, 5)), cache

    with pytest.raises(ValueError, match=r"logits of shape .* \(rows, vocabulary_size\)"):
        SEARCHES[name](step, [START], end_token_id=END, max_length=5)
    with pytest.raises(ValueError, match=r"start_token_ids.*\(1, 1\)"):
        SEARCHES[name](step, [[START]], end_token_id=END, max_length=5)
    with pytest.raises(ValueError, match="start_token_ids.*-1: token.*0"):
        SEARCHES[name](step, [START, -1], end_token_id=END, max_length=5)
