"""The same texts with and without a cache, eagerly, in graphs, under XLA, from SavedModels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from toy_models import AttentionModel, PrefixModel

from keras_transformers.decoding import Hypotheses, beam_search, greedy_search, sample

START, END, MAX_LENGTH, BATCH = 1, 2, 9, 7
SEARCHES = {
    "greedy": greedy_search,
    "beam": lambda *args, **options: beam_search(*args, num_beams=3, **options),
    "sample": lambda *args, **options: sample(*args, seed=5, num_hypotheses=2, **options),
}
every_search = pytest.mark.parametrize("name", SEARCHES)


def slow_but(kept: str) -> list[Any]:
    """All searches, marked slow but for one."""
    return [
        name if name == kept else pytest.param(name, marks=pytest.mark.slow) for name in SEARCHES
    ]


@pytest.fixture(scope="module")
def model() -> AttentionModel:
    return AttentionModel(vocabulary_size=11, width=8, max_length=MAX_LENGTH, seed=3)


def starts() -> Any:
    return tf.range(3, 3 + BATCH)  # a different start token makes each sentence different


def run(name: str, model: AttentionModel, kind: str, start_token_ids: Any) -> Hypotheses:
    return SEARCHES[name](
        getattr(model, f"{kind}_step"),
        start_token_ids,
        getattr(model, f"{kind}_cache")(tf.shape(start_token_ids)[0]),
        end_token_id=END,
        max_length=MAX_LENGTH,
        growing_axis=1 if kind == "growing" else None,
    )


def assert_equal(found: Hypotheses, expected: Hypotheses) -> None:
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    np.testing.assert_array_equal(found.finished, expected.finished)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.one_case
@every_search
def test_cached_equals_uncached_everywhere(name: str, model: AttentionModel) -> None:
    expected = run(name, model, "uncached", starts())
    assert len(set(expected.lengths.numpy().ravel().tolist())) > 1  # they end at different lengths
    for kind in ("growing", "fixed"):
        assert_equal(run(name, model, kind, starts()), expected)  # eager
        graph = tf.function(
            lambda tokens, kind=kind: run(name, model, kind, tokens), autograph=False
        )
        assert_equal(graph(starts()), expected)


@pytest.mark.parametrize("name", slow_but("beam"))
def test_under_xla_the_same(name: str, model: AttentionModel) -> None:
    expected = run(name, model, "uncached", starts())
    compiled = tf.function(
        lambda: run(name, model, "fixed", starts()), jit_compile=True, autograph=False
    )
    assert_equal(compiled(), expected)


@pytest.mark.slow
@every_search
def test_one_trace_for_all_batch_sizes(name: str, model: AttentionModel) -> None:
    traces = 0

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def graph(start_token_ids: Any) -> Hypotheses:
        nonlocal traces
        traces += 1
        return run(name, model, "growing", start_token_ids)

    everything = graph(starts())
    for batch in (0, 1, 3):
        part = graph(starts()[:batch])
        np.testing.assert_array_equal(part.token_ids, everything.token_ids[:batch])
    assert traces == 1


@pytest.mark.parametrize("name", slow_but("beam"))
def test_saved_model_and_session_of_version_1(
    name: str, model: AttentionModel, tmp_path: Path
) -> None:
    """TensorFlow Serving loads a SavedModel like a TensorFlow 1 session."""
    module = tf.Module()
    module.output = tf.Variable(model.output)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int32, name="starts")])
    def serve(start_token_ids: Any) -> dict[str, Any]:
        model.output = module.output
        return run(name, model, "growing", start_token_ids)._asdict()

    constant = model.output
    try:
        expected = serve(starts())
        tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": serve})
    finally:
        model.output = constant
    reloaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert_equal(Hypotheses(**reloaded(starts=starts())), Hypotheses(**expected))

    feed = starts().numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path))
        signature = loaded.signature_def["serving_default"]
        fetches = {key: tensor.name for key, tensor in signature.outputs.items()}
        found = session.run(fetches, {signature.inputs["starts"].name: feed})
    assert_equal(Hypotheses(**found), Hypotheses(**expected))


def test_every_leaf_of_a_nested_cache_follows_its_beam() -> None:
    model = PrefixModel(batch=5, vocabulary_size=5, depth=5, seed=0)

    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        (one, another), third = cache["pair"], cache["matrix"]
        tf.debugging.assert_equal(one, another)
        tf.debugging.assert_equal(tf.tile(one[:, None, None], [1, 2, 3]), third)
        logits, nodes = model.step(token_ids, index, one)
        matrix = tf.tile(nodes[:, None, None], [1, 2, 3])
        return logits, {"pair": (nodes, nodes + 0), "matrix": matrix}

    zeros = model.cache
    cache = {"pair": (zeros, zeros), "matrix": tf.zeros((5, 2, 3), tf.int32)}
    options = {"end_token_id": END, "max_length": 5, "num_beams": 3}
    found = beam_search(step, [START] * 5, cache, **options)
    assert_equal(found, beam_search(model.step, [START] * 5, model.cache, **options))
