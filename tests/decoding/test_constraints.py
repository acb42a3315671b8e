"""Forced tokens, n-grams that may not repeat and early stopping, against a plain reference."""

from typing import Any

import numpy as np
import pytest
import reference_search as reference
import tensorflow as tf
from toy_models import PrefixModel

from keras_transformers.decoding import Hypotheses, beam_search, greedy_search

START, END = 1, 2
OPTIONS: dict[str, dict[str, Any]] = {
    "first": {"first_token_ids": 3},
    "last": {"force_end": True},
    "words": {"no_repeat_ngram_size": 1},
    "pairs": {"no_repeat_ngram_size": 2},
    "all": {"first_token_ids": 3, "force_end": True, "no_repeat_ngram_size": 2, "min_length": 4},
}
every_option = pytest.mark.parametrize("name", OPTIONS)


@pytest.fixture(scope="module")
def model() -> PrefixModel:
    return PrefixModel(batch=40, vocabulary_size=6, depth=6, seed=11)


def search(model: PrefixModel, **options: Any) -> Hypotheses:
    """Runs a search over the toy model in a graph; returns NumPy arrays."""
    find = beam_search if "num_beams" in options else greedy_search

    @tf.function(autograph=False)
    def run() -> Hypotheses:
        starts = tf.fill([model.batch], START)
        return find(model.step, starts, model.cache, end_token_id=END, **options)

    return tf.nest.map_structure(lambda tensor: tensor.numpy(), run())


def constrained(model: PrefixModel, sentence: int, options: dict[str, Any], longest: int) -> Any:
    """The model's log-probabilities of a sentence with the options applied, as in transformers."""
    size = options.get("no_repeat_ngram_size", 0)
    first = options.get("first_token_ids")

    def log_probs(prefix: tuple[int, ...]) -> np.ndarray:
        found = model.log_probs(sentence, prefix)
        had = (START, *prefix)
        only = np.full_like(found, -np.inf)
        if options.get("force_end") and len(prefix) + 1 == longest:
            only[END] = 0
            return only
        if first is not None and not prefix:
            only[first if isinstance(first, int) else first[sentence]] = 0
            return only
        if size:
            now = had[len(had) - size + 1 :] if len(had) >= size else None
            for place in range(len(had) - size + 1):
                if had[place : place + size - 1] == now:
                    found[had[place + size - 1]] = -np.inf
        return found

    return log_probs


def assert_same(found: Hypotheses, sentence: int, expected: list[reference.Hypothesis]) -> None:
    possible = [hypothesis for hypothesis in expected if hypothesis.score > -np.inf]
    for slot, hypothesis in enumerate(possible):
        length = len(hypothesis.token_ids)
        assert tuple(found.token_ids[sentence, slot, : found.lengths[sentence, slot]]) == (
            hypothesis.token_ids
        )
        assert found.finished[sentence, slot] == hypothesis.finished
        assert not found.token_ids[sentence, slot, length:].any()
    scores = [hypothesis.score for hypothesis in possible]
    np.testing.assert_allclose(found.scores[sentence, : len(possible)], scores, atol=2e-5)


@pytest.mark.one_case
@every_option
def test_greedy_search_chooses_what_a_plain_reference_chooses(name, model) -> None:
    options = OPTIONS[name]
    limits = np.random.default_rng(0).integers(2, 7, model.batch)
    found = search(model, max_length=6, length_limits=limits, **options)
    for sentence, limit in enumerate(limits.tolist()):
        expected = reference.greedy_search(
            constrained(model, sentence, options, limit),
            end=END,
            max_length=limit,
            min_length=min(options.get("min_length", 0), limit),
        )
        assert_same(found, sentence, [expected])


@pytest.mark.one_case
@every_option
@pytest.mark.parametrize("rules", ["gnmt", "transformers"])
def test_beams_find_what_a_plain_reference_finds(name, rules, model) -> None:
    options = OPTIONS[name]
    found = search(model, max_length=5, num_beams=3, length_penalty=0.7, rules=rules, **options)
    for sentence in range(model.batch):
        arguments = {
            "end": END,
            "max_length": 5,
            "num_beams": 3,
            "alpha": 0.7,
            "min_length": options.get("min_length", 0),
        }
        log_probs = constrained(model, sentence, options, 5)
        if rules == "gnmt":
            expected = reference.beam_search(log_probs, num_hypotheses=3, **arguments)
        else:
            expected = reference.transformers_search(log_probs, **arguments)
        assert_same(found, sentence, expected)


@pytest.mark.one_case
@pytest.mark.parametrize("early_stopping", [True, "never"])
def test_beams_stop_when_transformers_would(early_stopping) -> None:
    model = PrefixModel(batch=40, vocabulary_size=6, depth=6, seed=11)
    model.logits[..., END] += 2.0  # texts end early
    arguments = {"max_length": 6, "num_beams": 3}
    options = {"rules": "transformers", **arguments}
    found = search(model, early_stopping=early_stopping, **options)
    plain = search(model, **options)
    differences = 0
    for sentence in range(model.batch):
        expected = reference.transformers_search(
            lambda prefix, sentence=sentence: model.log_probs(sentence, prefix),
            end=END,
            alpha=1.0,
            early_stopping=early_stopping,
            **arguments,
        )
        assert_same(found, sentence, expected)
        differences += (found.token_ids[sentence] != plain.token_ids[sentence]).any()
    assert differences > 9


@pytest.mark.one_case
@pytest.mark.parametrize("num_beams", [1, 3])
def test_each_text_may_have_its_own_first_token(num_beams, model) -> None:
    first = np.random.default_rng(1).integers(3, 6, model.batch)
    found = search(model, max_length=4, num_beams=num_beams, first_token_ids=first)
    np.testing.assert_array_equal(found.token_ids[:, 0, 0], first)
    alone = search(model, max_length=4, num_beams=num_beams, first_token_ids=int(first[5]))
    np.testing.assert_array_equal(found.token_ids[5], alone.token_ids[5])
    np.testing.assert_allclose(found.scores[5], alone.scores[5], rtol=1e-6)


def test_the_rules_of_opennmt_force_tokens_too(model) -> None:
    found = search(
        model, max_length=4, num_beams=2, rules="opennmt", first_token_ids=3, force_end=True
    )
    assert (found.token_ids[:, :, 0] == 3).all()
    assert found.finished.all()


def test_without_options_nothing_is_added_to_the_graph(model) -> None:
    def ops(**options: Any) -> set[str]:
        graph = tf.function(
            lambda: beam_search(
                model.step, tf.fill([40], START), model.cache, end_token_id=END, **options
            ),
            autograph=False,
        )
        functions = graph.get_concrete_function().graph.as_graph_def().library.function
        return {node.op for function in functions for node in function.node_def}

    added = {"StatelessIf", "If", "TensorScatterMin"}
    shape = {"max_length": 5, "num_beams": 3}
    assert not ops(**shape) & added
    assert ops(no_repeat_ngram_size=2, first_token_ids=3, **shape) & added


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1: .* 0 to allow"),
        ({"first_token_ids": -3}, "first_token_ids has -3: token ids are 0 or more"),
        ({"first_token_ids": [[3]]}, r"first_token_ids has shape \(1, 1\): expected one token per"),
        ({"force_end": True, "end_token_id": None}, "force_end=True, but end_token_id=None"),
        ({"early_stopping": "soon"}, "early_stopping='soon': use False, True or 'never'"),
        ({"early_stopping": True}, "early_stopping=True, but rules='gnmt' have one way to stop"),
        (
            {"rules": "opennmt", "no_repeat_ngram_size": 3},
            "no_repeat_ngram_size=3: the rules of OpenNMT-tf have no such option",
        ),
    ],
)
def test_bad_options_are_refused(options, message, model) -> None:
    with pytest.raises(ValueError, match=message):
        beam_search(
            model.step,
            [START] * model.batch,
            model.cache,
            **{"end_token_id": END, "max_length": 4, "num_beams": 2, **options},
        )
