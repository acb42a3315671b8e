"""Sampling: the right frequencies, reproducible, and independent of other rows."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from toy_models import PrefixModel

from keras_transformers.decoding import Hypotheses, sample
from keras_transformers.decoding.sampling import draw, keep_nucleus

START, END = 1, 2


def logits_step(logits: np.ndarray) -> Any:
    def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        return tf.tile(tf.constant(logits, tf.float32)[None], [tf.shape(token_ids)[0], 1]), cache

    return step


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def filtered(
    logits: np.ndarray, temperature: float, top_k: int | None, top_p: float | None
) -> np.ndarray:
    """The distribution to draw from, computed by sorting, as in the papers."""
    probabilities = softmax(logits.astype(np.float64) / temperature)
    order = np.argsort(-probabilities, kind="stable")
    probabilities[order[top_k or len(order) :]] = 0.0
    probabilities /= probabilities.sum()
    if top_p is not None:
        before = np.cumsum(probabilities[order]) - probabilities[order]
        probabilities[order[before >= top_p]] = 0.0
    return probabilities / probabilities.sum()


def assert_plausible(draws: np.ndarray, probabilities: np.ndarray) -> None:
    """A chi-square test at about five standard deviations; nothing impossible was drawn."""
    counts = np.bincount(draws, minlength=len(probabilities))
    assert counts.sum() == len(draws)
    assert not counts[probabilities == 0].any()
    possible = probabilities > 0
    expected = probabilities[possible] * len(draws)
    assert expected.min() > 5, "too few draws for the test"
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    assert statistic <= freedom + 5 * np.sqrt(2 * freedom) + 5


def frequency_options() -> Iterator[Any]:
    """All filters at one temperature, no filter and both at others; the rest is slow."""
    for top_p, top_k, temperature in itertools.product(
        (None, 0.1, 0.8, 1.0), (None, 1, 7), (0.5, 1.0, 1.7)
    ):
        is_daily = temperature == 1.7 or (top_p, top_k) in ((None, None), (0.8, 7))
        marks = () if is_daily else pytest.mark.slow
        yield pytest.param(top_p, top_k, temperature, marks=marks)


@pytest.mark.one_case
@pytest.mark.parametrize(("top_p", "top_k", "temperature"), frequency_options())
def test_frequencies(temperature: float, top_k: int | None, top_p: float | None) -> None:
    logits = np.random.default_rng(4).normal(size=20).astype(np.float32) * 0.8
    logits[3] = -np.inf
    drawn = sample(
        logits_step(logits),
        [0] * 4000,
        end_token_id=None,
        max_length=5,
        seed=42,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    expected = filtered(logits, temperature, top_k, top_p)
    assert_plausible(drawn.token_ids.numpy().ravel(), expected)
    # The score comes from the model itself, whatever the filters.
    log_probs = np.log(np.maximum(softmax(logits), 1e-30))
    np.testing.assert_allclose(
        drawn.scores[:, 0], log_probs[drawn.token_ids[:, 0]].sum(-1), rtol=1e-5
    )


@pytest.mark.parametrize("top_k", [None, 100])
def test_an_extremely_low_temperature_draws_among_the_likeliest(top_k: int | None) -> None:
    """Each of 200 log-probabilities, -5.3, overflows when divided by so little."""
    logits = np.where(np.arange(300) < 200, 1.0, 0.5)
    drawn = sample(
        logits_step(logits),
        [0] * 500,
        end_token_id=None,
        max_length=2,
        seed=3,
        temperature=1.2e-38,
        top_k=top_k,
    )
    found = set(drawn.token_ids.numpy().ravel().tolist())
    assert found <= set(range(top_k or 200))
    assert len(found) > 50


@pytest.mark.slow
def test_frequencies_in_a_large_vocabulary() -> None:
    weights = np.random.default_rng(0).uniform(0.5, 1.5, size=1009)
    drawn = sample(
        logits_step(np.log(weights)), [0] * 20_000, end_token_id=None, max_length=2, seed=3
    )
    assert_plausible(drawn.token_ids.numpy().ravel(), weights / weights.sum())


def test_random_numbers_are_independent_between_rows_positions_and_seeds() -> None:
    """All pairs of neighbouring throws of two dice are equally frequent."""

    def throw(seed: int) -> np.ndarray:
        drawn = sample(
            logits_step(np.zeros(6)), [0] * 500, end_token_id=None, max_length=20, seed=seed
        )
        return drawn.token_ids.numpy()[:, 0]

    first, second = throw(1), throw(2)
    even = np.full(36, 1 / 36)
    assert_plausible((first[:, :-1] * 6 + first[:, 1:])[:, ::2].ravel(), even)
    assert_plausible((first[:-1] * 6 + first[1:])[::2].ravel(), even)
    assert_plausible((first * 6 + second).ravel(), even)


def drawer(
    model: PrefixModel, *, jit_compile: bool = False, **options: Any
) -> Callable[[int], Hypotheses]:
    """A graph from a seed to texts, as NumPy arrays."""

    @tf.function(
        jit_compile=jit_compile, autograph=False, input_signature=[tf.TensorSpec([], tf.int32)]
    )
    def run(seed: tf.Tensor) -> Hypotheses:
        starts = tf.fill([model.batch], START)
        defaults = {"end_token_id": END, "max_length": 5, "seed": seed}
        return sample(model.step, starts, model.cache, **{**defaults, **options})

    return lambda seed: tf.nest.map_structure(lambda tensor: tensor.numpy(), run(seed))


def draw_texts(model: PrefixModel, **options: Any) -> Hypotheses:
    return drawer(model, **options)(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 4, "top_p": 0.7, "min_length": 3},
    ],
)
def test_same_seed_same_text(options: dict[str, Any]) -> None:
    model = PrefixModel(batch=50, vocabulary_size=5, depth=5, seed=1)
    drawn = drawer(model, **options)
    texts = drawn(1).token_ids
    np.testing.assert_array_equal(drawn(1).token_ids, texts)
    np.testing.assert_array_equal(draw_texts(model, jit_compile=True, **options).token_ids, texts)
    eager = sample(
        model.step,
        [START] * 50,
        model.cache,
        end_token_id=END,
        max_length=5,
        seed=tf.constant(1),
        **options,
    )
    np.testing.assert_array_equal(eager.token_ids, texts)
    assert (drawn(2).token_ids != texts).any()


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_neighbours_in_the_batch_change_nothing(jit_compile: bool) -> None:
    model = PrefixModel(batch=11, vocabulary_size=5, depth=5, seed=1)
    together = draw_texts(model, jit_compile=jit_compile)
    few = PrefixModel(batch=3, vocabulary_size=5, depth=5, seed=1)
    few.logits = model.logits[:3]
    fewer = draw_texts(few, jit_compile=jit_compile)
    np.testing.assert_array_equal(fewer.token_ids, together.token_ids[:3])
    model.logits[3:] = model.logits[3:][::-1].copy()
    np.testing.assert_array_equal(
        draw_texts(model, jit_compile=jit_compile).token_ids[:3], together.token_ids[:3]
    )


def test_several_texts_of_a_sentence_differ_and_follow_its_own_model() -> None:
    model = PrefixModel(batch=4, vocabulary_size=5, depth=5, seed=9)
    drawn = draw_texts(model, num_hypotheses=30)
    assert drawn.token_ids.shape == (4, 30, 5)
    for sentence in range(4):
        texts = set()
        for text, length, score, finished in zip(
            *(field[sentence] for field in drawn), strict=True
        ):
            prefix = tuple(int(token_id) for token_id in text[:length])
            assert (END in prefix) == finished
            assert END not in prefix[:-1]
            assert finished or length == 5
            assert (text[length:] == 0).all()
            log_prob = sum(
                model.log_probs(sentence, prefix[:i])[token_id] for i, token_id in enumerate(prefix)
            )
            np.testing.assert_allclose(score, log_prob, atol=1e-4)
            texts.add(prefix)
        assert len(texts) > 10


def test_min_length_keeps_the_end_back() -> None:
    logits = np.array([0.0, 0.0, 9.0, 0.0])
    options = {"end_token_id": END, "max_length": 6, "seed": 0}
    for top_k in (None, 2):
        drawn = sample(logits_step(logits), [0] * 50, min_length=4, top_k=top_k, **options)
        assert (drawn.lengths.numpy() >= 4).all()
        assert (drawn.lengths.numpy() == 4).any()
        tokens = drawn.token_ids.numpy()[:, 0, :3]
        assert not (tokens == END).any()
        log_probs = np.log(softmax(logits))  # not renormalized without the end
        expected = [
            log_probs[text[:length]].sum()
            for text, length in zip(
                drawn.token_ids.numpy()[:, 0], drawn.lengths.numpy()[:, 0], strict=True
            )
        ]
        np.testing.assert_allclose(drawn.scores[:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9, 0.999999])
def test_nucleus_is_that_of_sorting(top_p: float) -> None:
    random = np.random.default_rng(2)
    logits = (random.normal(size=(9, 3000)) * np.arange(9)[:, None]).astype(np.float32)
    probabilities = tf.nn.softmax(logits).numpy()
    kept = keep_nucleus(tf.constant(probabilities), top_p).numpy()
    np.testing.assert_array_equal(kept[kept > 0], probabilities[kept > 0])
    for row, (before, after) in enumerate(zip(probabilities, kept, strict=True)):
        if row == 0:  # all equally likely, so all or none are kept
            assert (after > 0).all()
            continue
        mass, smallest = after.sum(dtype=np.float64), after[after > 0].min()
        assert mass >= top_p - 1e-6
        assert mass - smallest < top_p + 1e-6
        assert (before[after == 0] < smallest).all()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, pytest.param(4097, marks=pytest.mark.slow)])
def test_draw_hits_the_entry_of_the_cumulative_sum(count: int) -> None:
    random = np.random.default_rng(count)
    weights = random.integers(0, 3, size=(2000, count)).astype(np.float32)
    weights[0, 0] = 0.0  # not drawn even if the random number is 0
    weights[:, -1] = 1.0
    uniform = random.uniform(size=2000).astype(np.float32)
    uniform[:2] = 0.0, 1.0 - 2.0**-24  # the smallest and largest possible
    for jit_compile in (False, True):
        drawn = tf.function(draw, jit_compile=jit_compile)(weights, uniform).numpy()
        cumulative = np.cumsum(weights, axis=1, dtype=np.float64)
        target = uniform * cumulative[:, -1]
        rows = np.arange(2000)
        assert (weights[rows, drawn] > 0).all()
        tolerance = 1e-5 * cumulative[:, -1]
        assert (cumulative[rows, drawn] > target - tolerance).all()
        assert (cumulative[rows, drawn] - weights[rows, drawn] <= target + tolerance).all()
