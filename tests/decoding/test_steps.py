"""Steps in Python: the tokens of the same search in a loop of the graph, one at a time."""

import gc
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from toy_models import AttentionModel, PrefixModel

from keras_transformers.decoding import Hypotheses, greedy_search
from keras_transformers.decoding.rows import ROW_OPTIONS, sample_rows, steps
from keras_transformers.decoding.single_path import Step

START, END, BATCH, MAX_LENGTH = 1, 2, 5, 7
PLAIN = {"seed": 0, "temperature": 1.0, "top_k": 1, "top_p": 1.0, "repetition_penalty": 1.0}


@pytest.fixture(scope="module")
def model() -> PrefixModel:
    return PrefixModel(batch=BATCH, vocabulary_size=6, depth=6, seed=3)


def assert_same(every: Sequence[Step], expected: Hypotheses) -> None:
    """The steps have the tokens, log-probabilities and ends of a search's only hypotheses."""
    token_ids = np.stack([step.token_ids for step in every], axis=1)
    log_probs = np.stack([step.log_probs for step in every], axis=1)
    lengths = expected.lengths[:, 0].numpy()
    np.testing.assert_array_equal(token_ids, expected.token_ids[:, 0, : len(every)])
    np.testing.assert_array_equal(np.cumsum(log_probs, axis=1)[:, -1], expected.scores[:, 0])
    assert len(every) == lengths.max()
    for number, step in enumerate(every, start=1):
        np.testing.assert_array_equal(step.ended, lengths <= number)
        assert not (step.finished & ~step.ended).any()
        assert not step.log_probs[lengths < number].any()
    np.testing.assert_array_equal(every[-1].finished, expected.finished[:, 0])


def in_graph(model: PrefixModel, **options: Any) -> Hypotheses:
    """Runs `sample_rows` in a graph, with options that may have one value for all rows."""
    rows = {
        name: tf.constant(np.broadcast_to(value, [BATCH]), ROW_OPTIONS[name])
        for name, value in options.items()
        if name in ROW_OPTIONS
    }

    @tf.function(autograph=False)
    def run(**rows: tf.Tensor) -> Hypotheses:
        others = {name: value for name, value in options.items() if name not in rows}
        starts = tf.fill([BATCH], START)
        return sample_rows(model.step, starts, model.cache, longest=20, **rows, **others)

    return run(**rows)


CASES = {
    "greedy": {},
    "sampling": {"top_k": 0, "temperature": 1.3, "seed": [5, 6, 7, 8, 5]},
    "a row each": {
        "temperature": [0.7, 1.0, 2.0, 1.0, 1.0],
        "top_k": [0, 3, 0, 1, 2],
        "top_p": [0.9, 1.0, 0.5, 1.0, 1.0],
        "max_length": [6, 3, 0, 7, 1],
        "repetition_penalty": [1.0, 4.0, 1.0, 2.0, 0.5],
    },
    "penalty": {
        "repetition_penalty": 3.0,
        "prompt_token_ids": tf.constant([[3, 4], [5, 5], [1, 1], [0, 3], [4, 5]]),
    },
    "stops": {"stops": lambda token_ids: tf.reduce_any(token_ids == 4, axis=1)},
    "other ends": {"also_end_token_ids": (3, 5), "pad_token_id": 1},
    "shortest": {"min_length": 4, "top_k": 0, "also_end_token_ids": (4,)},
    "no end": {"end_token_id": None},
}


@pytest.mark.one_case
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_graph(case: str, model: PrefixModel) -> None:
    options = {**PLAIN, "end_token_id": END, "max_length": MAX_LENGTH, **CASES[case]}
    expected = in_graph(model, **options)
    if case not in ("no end", "other ends"):
        assert len(set(expected.lengths.numpy().ravel().tolist())) > 1, "rows end at one step"
    if case == "shortest":
        assert expected.lengths.numpy().min() == 4
    assert_same(list(steps(model.step, [START] * BATCH, model.cache, **options)), expected)


@pytest.mark.parametrize("kind", ["growing", "fixed"])
def test_greedy_steps_are_greedy_search_with_any_cache(kind: str) -> None:
    model = AttentionModel(vocabulary_size=11, width=8, max_length=MAX_LENGTH, seed=3)
    starts = tf.range(3, 3 + BATCH)
    options = {
        "end_token_id": END,
        "max_length": MAX_LENGTH,
        "growing_axis": 1 if kind == "growing" else None,
    }
    step, cache = (getattr(model, f"{kind}_{part}") for part in ("step", "cache"))
    expected = greedy_search(step, starts, cache(BATCH), **options)
    every = list(steps(step, starts, cache(BATCH), **options))
    token_ids = np.stack([step.token_ids for step in every], axis=1)
    np.testing.assert_array_equal(token_ids, expected.token_ids[:, 0, : len(every)])
    total = np.sum([step.log_probs for step in every], axis=0)
    np.testing.assert_allclose(total, expected.scores[:, 0], rtol=1e-5)


@pytest.mark.slow
def test_who_leaves_computes_no_more_and_frees_the_cache() -> None:
    computed = tf.Variable(0)

    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        computed.assign_add(1)
        return tf.zeros([tf.shape(token_ids)[0], 6]), tf.concat([cache, cache[:, :1]], axis=1)

    cache = tf.ones([1, 1, 1000])
    first = weakref.ref(cache)
    stepping = steps(step, [START], cache, end_token_id=None, max_length=100, growing_axis=1)
    del cache
    assert computed.numpy() == 0
    for _ in itertools.islice(stepping, 3):
        pass
    assert computed.numpy() == 3
    gc.collect()
    assert first() is None, "a step keeps the cache of an earlier one"
    held = [
        weakref.ref(tensor)
        for tensor in gc.get_objects()
        if isinstance(tensor, tf.Tensor) and tensor.shape[1:] == [4, 1000]
    ]
    assert len(held) == 1
    stepping.close()
    gc.collect()
    assert held[0]() is None
    assert next(stepping, None) is None
    assert computed.numpy() == 3


def test_nothing_to_generate_computes_nothing() -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        tf.debugging.Assert(False, ["nothing to feed"])
        return tf.zeros([tf.shape(token_ids)[0], 6]), cache

    assert list(steps(step, [1, 1], end_token_id=END, max_length=0)) == []
    assert list(steps(step, tf.zeros([0], tf.int32), end_token_id=END, max_length=5)) == []


def test_rows_in_which_everything_is_forbidden_end() -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        logits = tf.constant([[-np.inf, -np.inf, 0.0]])
        return tf.tile(logits, [tf.shape(token_ids)[0], 1]), cache

    (only,) = steps(step, [START], end_token_id=END, max_length=5, min_length=2)
    assert only.ended.tolist() == [True]
    assert only.finished.tolist() == [False]
    assert only.token_ids.tolist() == [0]
    assert only.log_probs.tolist() == [-np.inf]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0: .*above 0"),
        ({"temperature": [1.0, float("nan")]}, r"temperature=\[1.0, nan\]: .*above 0"),
        ({"top_k": -1}, "top_k=-1: .*0 for all"),
        ({"top_p": 1.5}, "top_p=1.5: .*at most 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0: .*above 0"),
        ({"max_length": [3, -1]}, r"max_length=\[3, -1\]: .*0 or more"),
        ({"min_length": 6}, "min_length=6 .* max_length=5"),
        ({"end_token_id": 9}, "end_token_id=9 is outside .* 6 columns"),
        ({"growing_axis": 1}, "growing_axis=1"),
    ],
)
def test_bad_options_are_refused_before_the_first_step(
    options: dict[str, Any], message: str
) -> None:
    model = PrefixModel(batch=2, vocabulary_size=6, depth=2, seed=0)
    with pytest.raises(ValueError, match=message):
        steps(
            model.step,
            [START, START],
            model.cache,
            **{"end_token_id": END, "max_length": 5, **options},
        )
