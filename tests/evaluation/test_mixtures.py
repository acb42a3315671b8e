"""Mixtures of language models, and the cache of the document."""

import numpy as np
import pytest

from keras_transformers.data.language_models import RowBatches, TokenStream
from keras_transformers.evaluation import (
    DocumentCache,
    KneserNey,
    ScoredText,
    compare_with_cache_and_ngrams,
    mixed_log_probabilities,
    mixture_weights,
)

RNG = np.random.default_rng(0)


def models(num_tokens=200):
    return {name: np.log(RNG.uniform(0.01, 1.0, num_tokens)) for name in ("a", "b", "c")}


def test_no_other_weights_are_better():
    found = models()
    weights = mixture_weights(found, rounds=2000)
    assert sum(weights.values()) == pytest.approx(1.0)
    best = mixed_log_probabilities(found, weights).sum()
    for _ in range(50):
        other = dict(zip(found, RNG.dirichlet([1.0, 1.0, 1.0]), strict=True))
        assert mixed_log_probabilities(found, other).sum() <= best + 1e-6


def test_a_model_that_knows_nothing_gets_no_weight():
    found = {"good": np.log([0.5, 0.5]), "never": np.array([-np.inf, -np.inf])}
    assert mixture_weights(found) == {"good": 1.0, "never": 0.0}
    np.testing.assert_allclose(
        mixed_log_probabilities(found, {"good": 0.5, "never": 0.5}), np.log([0.25, 0.25])
    )


def test_errors_of_mixtures():
    with pytest.raises(ValueError, match="token 1 .*probability 0"):
        mixture_weights({"a": np.array([0.0, -np.inf])})
    with pytest.raises(ValueError, match="'a': 1, 'b': 2"):
        mixture_weights({"a": np.zeros(1), "b": np.zeros(2)})
    with pytest.raises(ValueError, match="differ in b"):
        mixed_log_probabilities({"a": np.zeros(1)}, {"a": 0.5, "b": 0.5})


def scored(lengths=(40, 1, 25), vocabulary_size=6, width=5):
    total = sum(lengths)
    return ScoredText(
        np.log(RNG.uniform(0.1, 0.9, total)),
        RNG.normal(size=(total, width)).astype("float32"),
        RNG.integers(0, vocabulary_size, total),
        np.repeat(np.arange(len(lengths)), lengths),
    )


@pytest.mark.parametrize("queries", [7, 512])
@pytest.mark.parametrize("size", [3, 2000])
def test_the_cache_is_the_papers_sum(monkeypatch, queries, size):
    """One token at a time, in plain loops, across blocks and documents."""
    monkeypatch.setattr("keras_transformers.evaluation.document_cache._QUERIES", queries)
    text, sharpness = scored(), 3.0
    hidden = text.hidden / np.linalg.norm(text.hidden, axis=1, keepdims=True)
    expected = []
    for t, (token, document) in enumerate(zip(text.token_ids, text.document_ids, strict=True)):
        earlier = [i for i in range(max(0, t - size), t) if text.document_ids[i] == document]
        shares = {i: np.exp(sharpness * float(hidden[t] @ hidden[i])) for i in earlier}
        same = sum(share for i, share in shares.items() if text.token_ids[i] == token)
        own = np.exp(text.log_probabilities[t])
        expected.append(same / sum(shares.values()) if earlier else own)
    found = DocumentCache(sharpness=sharpness, size=size).log_probabilities(text)
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-5, atol=1e-7)


def test_a_document_that_repeats_itself_is_predicted_better():
    states, tokens = RNG.normal(size=(10, 8)).astype("float32"), RNG.integers(0, 50, 10)
    text = ScoredText(
        np.full(100, np.log(0.02)),
        np.tile(states, (10, 1)),
        np.tile(tokens, 10),
        np.zeros(100, int),
    )
    ngrams = KneserNey(order=2).fit([tokens], 50)
    found = compare_with_cache_and_ngrams("model", text, text, ngrams)
    assert found["model"] == pytest.approx(-100 * np.log(0.02))
    assert found["model + cache"] < 0.3 * found["model"]
    assert list(found) == [
        "model",
        "model + cache",
        "Kneser-Ney 2-grams",
        "model + Kneser-Ney 2-grams",
        "model + cache + Kneser-Ney 2-grams",
    ]


@pytest.mark.parametrize("options", [{"sharpness": -1.0}, {"sharpness": 1.0, "size": 0}])
def test_impossible_caches_are_refused(options):
    with pytest.raises(ValueError, match="must be 0 or more, and 1 or more"):
        DocumentCache(**options)


@pytest.mark.parametrize("static_shapes", [None, 1])
def test_scores_follow_the_text_whatever_the_rows(static_shapes):
    """Rows of 8 that start every 3 tokens: each token once, with its document.

    With static shapes the last batch is completed by a row that the outputs leave out.
    """
    ids, documents = np.arange(20) % 7, np.array([0] * 9 + [1] * 10 + [2])
    stream = TokenStream(ids.astype(np.int32), documents.astype(np.int32), 1, 1)
    rows = RowBatches(
        stream, length=8, batch_size=2, shuffle=False, stride=3, static_shapes=static_shapes
    )
    logits = np.log(np.arange(1.0, 8.0) / 28)

    def outputs():
        num_left = rows.num_rows
        for inputs, *_ in rows.dataset():
            token_ids = inputs["token_ids"].numpy()[:num_left]
            num_left -= len(token_ids)
            yield {
                "logits": np.broadcast_to(logits, (*token_ids.shape, 7)).astype("float32"),
                "hidden": token_ids[..., None].astype("float32"),
            }

    text = ScoredText.of(stream, outputs(), rows.dataset())
    np.testing.assert_array_equal(text.token_ids, ids[1:])
    np.testing.assert_array_equal(text.hidden[:, 0], ids[:-1])  # predicted from the one before
    np.testing.assert_allclose(text.log_probabilities, logits[ids[1:]], rtol=1e-6)
    for found, expected in zip(text.documents(), stream.documents(), strict=True):
        np.testing.assert_array_equal(found, expected)
    other = TokenStream(stream.token_ids[:-1], stream.document_ids[:-1], 1, 1)
    with pytest.raises(ValueError, match="19 tokens.*18"):
        ScoredText.of(other, outputs(), rows.dataset())
