"""Beam search against exhaustive search, against a plain reference, and its invariants."""

import itertools
from typing import Any

import numpy as np
import pytest
import reference_search as reference
import tensorflow as tf
from toy_models import PrefixModel

from keras_transformers.decoding import Hypotheses, beam_search, greedy_search

START, END = 1, 2


def search(model: PrefixModel, **options: Any) -> Hypotheses:
    """Runs a beam search over a toy model in a graph; returns NumPy arrays."""

    @tf.function(autograph=False)
    def run() -> Hypotheses:
        starts = tf.fill([model.batch], START)
        return beam_search(model.step, starts, model.cache, end_token_id=END, **options)

    return tf.nest.map_structure(lambda tensor: tensor.numpy(), run())


def assert_same(found: Hypotheses, sentence: int, expected: list[reference.Hypothesis]) -> None:
    """Checks a sentence's hypotheses against a reference; the remaining slots are empty."""
    num_slots = found.scores.shape[1]
    expected = expected[:num_slots]
    for slot, hypothesis in enumerate(expected):
        length = len(hypothesis.token_ids)
        assert found.lengths[sentence, slot] == length
        assert tuple(found.token_ids[sentence, slot, :length]) == hypothesis.token_ids
        assert (found.token_ids[sentence, slot, length:] == 0).all()
        assert found.finished[sentence, slot] == hypothesis.finished
    scores = [hypothesis.score for hypothesis in expected]
    np.testing.assert_allclose(found.scores[sentence, : len(expected)], scores, atol=2e-5)
    assert (found.scores[sentence, len(expected) :] == -np.inf).all()
    assert (found.lengths[sentence, len(expected) :] == 0).all()
    assert (found.token_ids[sentence, len(expected) :] == 0).all()
    assert not found.finished[sentence, len(expected) :].any()


def slow(*values: Any) -> list[Any]:
    """Returns values as parameters of slow tests."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.6, *slow(1.0, 2.5)])
@pytest.mark.parametrize("min_length", [0, 3])
def test_wide_beam_finds_what_exhaustive_search_finds(alpha: float, min_length: int) -> None:
    model = PrefixModel(batch=8, vocabulary_size=4, depth=4, seed=int(alpha * 10) + min_length)
    options = {"max_length": 4, "min_length": min_length}
    # The 3^3 prefixes of three words have 4 * 27 = 108 extensions; 54 beams consider them all.
    found = search(model, num_beams=54, num_hypotheses=50, length_penalty=alpha, **options)
    for sentence in range(model.batch):
        expected = reference.exhaustive_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix),
            vocabulary_size=4,
            end=END,
            alpha=alpha,
            **options,
        )
        assert_same(found, sentence, expected)


@pytest.mark.parametrize(
    ("num_hypotheses", "min_length", "alpha"),
    [
        (1, 0, 0.0),
        (3, 0, 0.6),
        (3, 4, 2.0),
        *slow((1, 0, 0.6), (1, 0, 2.0), (3, 0, 0.0), (3, 0, 2.0), (3, 4, 0.0), (3, 4, 0.6)),
    ],
)
def test_agrees_with_a_plain_reference_that_never_stops_early(
    num_hypotheses: int, alpha: float, min_length: int
) -> None:
    model = PrefixModel(batch=60, vocabulary_size=5, depth=6, seed=7)
    limits = np.random.default_rng(3).integers(1, 8, model.batch)  # some beyond max_length
    options = {"num_beams": 3, "num_hypotheses": num_hypotheses}
    found = search(
        model,
        max_length=6,
        min_length=min_length,
        length_limits=limits,
        length_penalty=alpha,
        **options,
    )
    for sentence, limit in enumerate(limits):
        max_length = min(int(limit), 6)
        expected = reference.beam_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix),
            end=END,
            max_length=max_length,
            min_length=min(min_length, max_length),
            alpha=alpha,
            **options,
        )
        assert_same(found, sentence, expected)


@pytest.mark.parametrize(("min_length", "alpha"), [(2, 0.4), (2, 1.0), *slow((4, 2.0))])
def test_the_rules_of_transformers_find_what_its_search_finds(
    min_length: int, alpha: float
) -> None:
    model = PrefixModel(batch=60, vocabulary_size=5, depth=6, seed=7)
    limits = np.random.default_rng(3).integers(1, 7, model.batch)
    options = {"num_beams": 3, "length_penalty": alpha, "min_length": min_length, "max_length": 6}
    found = search(model, rules="transformers", length_limits=limits, **options)
    ours = search(model, length_limits=limits, **options)
    differences = 0
    for sentence, limit in enumerate(limits):
        expected = reference.transformers_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix),
            end=END,
            max_length=int(limit),
            num_beams=3,
            min_length=min(min_length, int(limit)),
            alpha=alpha,
        )
        assert_same(found, sentence, expected)
        differences += (found.token_ids[sentence, 0] != ours.token_ids[sentence, 0]).any()
    assert differences > 5


def test_pools_find_what_rescoring_finished_beams_misses() -> None:
    """400 random Markov models; a search that continues after the end token fails here."""
    num_models, vocabulary_size, max_length = 400, 5, 6
    random = np.random.default_rng(0)
    logits = random.normal(size=(num_models, vocabulary_size, vocabulary_size)) * 1.5
    tables = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        by_model = tf.reshape(token_ids, (num_models, -1))
        rows = tf.gather(tf.constant(logits, tf.float32), by_model, batch_dims=1)
        return tf.reshape(rows, (-1, vocabulary_size)), cache

    found = beam_search(
        step,
        [START] * num_models,
        end_token_id=END,
        max_length=max_length,
        num_beams=4,
        length_penalty=0.0,
    )
    misses = naive_misses = 0
    for model, table in enumerate(tables):
        best = best_of_markov_model(table, max_length)
        misses += not np.isclose(found.scores[model, 0], best, atol=1e-4)
        naive_misses += not np.isclose(rescoring_beam(table, max_length, 4), best, atol=1e-4)
    assert misses <= 8  # beam search is not exhaustive
    assert naive_misses >= 200


def best_of_markov_model(table: np.ndarray, max_length: int) -> float:
    """The log-probability of the likeliest text that ends, by dynamic programming."""
    best = {START: 0.0}
    ends = []
    for _ in range(max_length):
        reached: dict[int, float] = {}
        for last, log_prob in best.items():
            for token_id, extra in enumerate(table[last]):
                reached[token_id] = max(reached.get(token_id, -np.inf), log_prob + extra)
        ends.append(reached.pop(END))
        best = reached
    return max(ends)


def rescoring_beam(table: np.ndarray, max_length: int, num_beams: int) -> float:
    """The best score of a wrong search: one pool, which extends finished beams too."""
    beams = [((START,), 0.0)]
    for _ in range(max_length):
        extended = [
            ((*text, token_id), log_prob + extra)
            for text, log_prob in beams
            for token_id, extra in enumerate(table[text[-1]])
        ]
        beams = sorted(extended, key=lambda each: -each[1])[:num_beams]
        if all(END in text for text, _ in beams):
            break
    text = beams[0][0]
    text = text[: text.index(END) + 1] if END in text else text
    return sum(table[last, token_id] for last, token_id in itertools.pairwise(text))


def test_finished_hypotheses_are_never_extended_nor_scored_again() -> None:
    """Logits after an end token change nothing, and no open row contains an end token."""
    model = PrefixModel(batch=6, vocabulary_size=4, depth=5, seed=11)
    before = search(model, max_length=5, num_beams=4)
    for node in range(model.num_nodes):  # make everything after an end token irresistible
        prefix = node
        while prefix:
            prefix, token_id = divmod(prefix - 1, model.vocabulary_size)
            if token_id == END:
                model.logits[:, node] = 0.0
                model.logits[:, node, END] = 50.0
                break
    after = search(model, max_length=5, num_beams=4)
    np.testing.assert_array_equal(before.token_ids, after.token_ids)
    np.testing.assert_array_equal(before.scores, after.scores)
    for sentence in range(model.batch):
        for text, length, score in zip(
            after.token_ids[sentence],
            after.lengths[sentence],
            after.scores[sentence],
            strict=True,
        ):
            prefix = tuple(int(token_id) for token_id in text[:length])
            log_prob = sum(
                model.log_probs(sentence, prefix[:i])[token_id] for i, token_id in enumerate(prefix)
            )
            np.testing.assert_allclose(score, log_prob / reference.penalty(length, 0.6), atol=1e-5)


@pytest.mark.parametrize("alpha", [0.6, *slow(0.0, 2.0)])
@pytest.mark.parametrize("min_length", [0, 3])
def test_one_beam_is_greedy_search(alpha: float, min_length: int) -> None:
    model = PrefixModel(batch=40, vocabulary_size=5, depth=5, seed=5)
    options = {"max_length": 5, "min_length": min_length}
    found = search(model, num_beams=1, length_penalty=alpha, **options)
    greedy = greedy_search(
        model.step, [START] * model.batch, model.cache, end_token_id=END, **options
    )
    np.testing.assert_array_equal(found.token_ids, greedy.token_ids)
    np.testing.assert_array_equal(found.finished, greedy.finished)
    for sentence in range(model.batch):
        expected = reference.greedy_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix), end=END, **options
        )
        score = expected.score / reference.penalty(len(expected.token_ids), alpha)
        assert_same(found, sentence, [expected._replace(score=score)])


@pytest.mark.parametrize("min_length", [0, 2])
def test_hypotheses_are_sorted_and_distinct(min_length: int) -> None:
    model = PrefixModel(batch=30, vocabulary_size=4, depth=5, seed=2)
    found = search(model, max_length=5, num_beams=8, min_length=min_length)
    assert np.isfinite(found.scores).all()
    for sentence in range(model.batch):
        texts = {
            tuple(text[:length])
            for text, length in zip(found.token_ids[sentence], found.lengths[sentence], strict=True)
        }
        assert len(texts) == 8
        finished = found.finished[sentence]
        num_finished = finished.sum()
        assert finished[:num_finished].all()
        assert (np.diff(found.scores[sentence, :num_finished]) <= 0).all()
        assert (np.diff(found.scores[sentence, num_finished:]) <= 0).all()
    assert (found.lengths[found.finished] >= max(min_length, 1)).all()


@pytest.mark.slow
def test_fewer_hypotheses_are_the_first_ones() -> None:
    model = PrefixModel(batch=30, vocabulary_size=5, depth=6, seed=13)
    many = search(model, max_length=6, num_beams=4)
    for num_hypotheses in (1, 2):
        few = search(model, max_length=6, num_beams=4, num_hypotheses=num_hypotheses)
        for part, whole in zip(few, many, strict=True):
            np.testing.assert_array_equal(part, whole[:, :num_hypotheses])


@pytest.mark.slow
def test_neighbours_in_the_batch_change_nothing() -> None:
    """The order of rows, other rows and the width of the result have no influence."""
    model = PrefixModel(batch=6, vocabulary_size=5, depth=6, seed=17)
    limits = np.array([6, 1, 4, 6, 0, 3])
    together = search(model, max_length=6, num_beams=3, length_limits=limits)
    order = np.array([3, 5, 0, 4, 2, 1])
    logits = model.logits
    model.logits = logits[order]
    permuted = search(model, max_length=6, num_beams=3, length_limits=limits[order])
    for part, whole in zip(permuted, together, strict=True):
        np.testing.assert_allclose(part, whole[order], rtol=1e-6)
    for sentence, limit in enumerate(limits):
        alone = PrefixModel(batch=1, vocabulary_size=5, depth=6, seed=0)
        alone.logits = logits[sentence : sentence + 1]
        single = search(alone, max_length=int(limit), num_beams=3)
        np.testing.assert_array_equal(
            single.token_ids[0], together.token_ids[sentence, :, : int(limit)]
        )
        np.testing.assert_allclose(single.scores[0], together.scores[sentence], rtol=1e-6)


def count_steps(probabilities: list[float], **options: Any) -> int:
    """Counts the steps of an eager search over a memoryless model."""
    steps = 0

    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        nonlocal steps
        steps += 1
        logits = tf.math.log(tf.constant([probabilities]))
        return tf.tile(logits, [token_ids.shape[0], 1]), cache

    beam_search(step, [START], end_token_id=END, max_length=40, **options)
    return steps


def test_stops_as_soon_as_no_alive_hypothesis_can_win() -> None:
    mostly_end = [0.02, 0.02, 0.9, 0.06]
    # The best text is just the end token; without a penalty nothing else can beat it.
    assert count_steps(mostly_end, num_beams=2, num_hypotheses=1, length_penalty=0.0) == 1
    assert count_steps(mostly_end, num_beams=2, num_hypotheses=2, length_penalty=0.0) == 2
    # For 40 tokens, the penalty divides log(0.06) by 7.5, too little, or by 56: then it might win.
    assert count_steps(mostly_end, num_beams=2, num_hypotheses=1, length_penalty=1.0) == 1
    assert count_steps(mostly_end, num_beams=2, num_hypotheses=1, length_penalty=2.0) > 1
    never_end = [0.3, 0.3, 0.0, 0.4]
    assert count_steps(never_end, num_beams=2) == 40


def test_cut_hypotheses_come_after_finished_ones() -> None:
    """The end is so unlikely that every cut text scores higher than any finished one."""
    logits = tf.math.log([[0.5, 0.2, 1e-4, 0.3]])

    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        return tf.tile(logits, [tf.shape(token_ids)[0], 1]), cache

    found = beam_search(
        step, [START], end_token_id=END, max_length=2, num_beams=4, length_penalty=0.0
    )
    # The eight candidates include the end token in the first step, but not in the second.
    np.testing.assert_array_equal(found.finished[0], [True, False, False, False])
    np.testing.assert_array_equal(found.token_ids[0], [[2, 0], [0, 0], [0, 3], [3, 0]])
    np.testing.assert_array_equal(found.lengths[0], [1, 2, 2, 2])
    np.testing.assert_allclose(tf.exp(found.scores[0]), [1e-4, 0.25, 0.15, 0.15], rtol=1e-3)


def test_equal_scores_are_ordered_by_beam_and_token() -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        return tf.zeros((tf.shape(token_ids)[0], 1000)), cache  # several blocks of tokens

    found = beam_search(
        step, [START], end_token_id=None, max_length=2, num_beams=3, length_penalty=0.0
    )
    np.testing.assert_array_equal(found.token_ids[0], [[0, 0], [0, 1], [0, 2]])


def test_forbidden_tokens_never_come() -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        logits = tf.constant([[-np.inf, -np.inf, 0.0, 1.0]])
        return tf.tile(logits, [tf.shape(token_ids)[0], 1]), cache

    found = beam_search(step, [START], end_token_id=END, max_length=3, num_beams=6)
    # 2, 32, 332 end and 333 is cut: four texts, two empty slots.
    np.testing.assert_array_equal(np.isfinite(found.scores[0]), [True] * 4 + [False] * 2)
    assert set(found.token_ids[0, :4].numpy().ravel()) <= {0, 2, 3}
    np.testing.assert_array_equal(found.lengths[0, 4:], [0, 0])


def test_more_beams_than_tokens_leave_slots_empty() -> None:
    model = PrefixModel(batch=3, vocabulary_size=3, depth=2, seed=1)
    found = search(model, max_length=2, num_beams=20, length_penalty=0.0)
    for sentence in range(3):
        expected = reference.exhaustive_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix),
            vocabulary_size=3,
            end=END,
            max_length=2,
        )
        assert len(expected) == 7
        assert_same(found, sentence, expected)


@pytest.mark.parametrize("num_beams", [1, 2])
def test_a_vocabulary_of_nothing_but_the_end(num_beams: int) -> None:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        tf.debugging.assert_equal(token_ids, 0)
        return tf.zeros((tf.shape(token_ids)[0], 1)), cache

    found = beam_search(step, [0], end_token_id=0, max_length=3, num_beams=num_beams)
    np.testing.assert_array_equal(found.lengths[0, 0], 1)
    np.testing.assert_array_equal(found.scores[0, 0], 0.0)
    found = beam_search(step, [0], end_token_id=0, max_length=3, min_length=2, num_beams=num_beams)
    np.testing.assert_array_equal(found.scores[0, 0], -np.inf)
    np.testing.assert_array_equal(found.lengths[0, 0], 0)
