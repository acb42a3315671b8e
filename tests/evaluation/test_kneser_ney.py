"""Kneser-Ney matches its formulas in plain Python, and nltk."""

import collections
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from keras_transformers.evaluation.kneser_ney import FALLBACK_DISCOUNTS, KneserNey

GOLDEN = Path(__file__).parents[1] / "golden"
MAKE = runpy.run_path(str(GOLDEN / "make_kneser_ney.py"))
SIZE = MAKE["VOCABULARY_SIZE"]
TEXTS = MAKE["sequences"](60, 0)
OTHERS = MAKE["sequences"](10, 1)


class Plain:
    """Chen & Goodman's formulas, one n-gram at a time."""

    def __init__(self, sequences, order, vocabulary_size):
        self.order, self.vocabulary_size = order, vocabulary_size
        raw = collections.Counter()
        for ids in sequences:
            words = ["s"] * (order - 1) + list(ids)
            for end in range(order, len(words) + 1):
                raw.update(tuple(words[end - n : end]) for n in range(1, order + 1))
        self.counts = {gram: count for gram, count in raw.items() if len(gram) == order}
        for gram in raw:  # for shorter ones, count the tokens that precede them
            if len(gram) > 1:
                self.counts.setdefault(gram[1:], 0)
                self.counts[gram[1:]] += 1
        self.discounts = {}
        for n in range(1, order + 1):
            of_counts = collections.Counter(c for g, c in self.counts.items() if len(g) == n)
            n1, n2, n3, n4 = (of_counts[r] for r in (1, 2, 3, 4))
            y = n1 / (n1 + 2 * n2) if n1 else 0
            usable = n1 and n2 and n3 and n4
            found = usable and (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
            good = found and all(0 <= d <= r for r, d in enumerate(found, start=1))
            self.discounts[n] = found if good else FALLBACK_DISCOUNTS

    def probability(self, word, context):
        gram = (*context, word)
        discounts = self.discounts[len(gram)]
        follow = {
            w: self.counts[(*context, w)]
            for w in range(self.vocabulary_size)
            if (*context, w) in self.counts
        }
        below = self.probability(word, context[1:]) if context else 1 / self.vocabulary_size
        if not follow:
            return below
        total = sum(follow.values())
        left = sum(discounts[min(count, 3) - 1] for count in follow.values())
        count = follow.get(word, 0)
        own = count - discounts[min(count, 3) - 1] if count else 0
        return own / total + left / total * below

    def log_probabilities(self, ids):
        words = ["s"] * (self.order - 1) + list(ids)
        places = range(self.order - 1, len(words))
        return np.log(
            [self.probability(words[i], tuple(words[i - self.order + 1 : i])) for i in places]
        )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_the_formulas(order):
    # Many short texts, so that discounts can be estimated for the lower orders.
    texts = MAKE["sequences"](400, 0)
    model, plain = KneserNey(order=order).fit(texts, SIZE), Plain(texts, order, SIZE)
    np.testing.assert_allclose(model.discounts, list(plain.discounts.values()), rtol=1e-12)
    assert order < 3 or any(chosen != FALLBACK_DISCOUNTS for chosen in model.discounts)
    for ids in (*OTHERS, *texts[:20]):
        np.testing.assert_allclose(
            model.log_probabilities(ids), plain.log_probabilities(ids), rtol=1e-9
        )


@pytest.mark.parametrize("order", MAKE["ORDERS"])
def test_with_one_discount_it_is_nltks(order):
    expected = json.loads((GOLDEN / "kneser_ney.json").read_text())[str(order)]
    model = KneserNey(order=order, discounts=[MAKE["DISCOUNT"]] * 3).fit(TEXTS, SIZE)
    for ids, row in zip(OTHERS, expected, strict=True):
        np.testing.assert_allclose(model.log_probabilities(ids), row, rtol=1e-9)


@pytest.mark.reference
def test_nltk_says_so_today():
    pytest.importorskip("nltk", reason="needs nltk: pip install nltk")
    stored = json.loads((GOLDEN / "kneser_ney.json").read_text())
    for order, rows in MAKE["golden"]().items():
        for row, expected in zip(rows, stored[order], strict=True):
            np.testing.assert_allclose(row, expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_sum_to_one_in_every_context(order):
    model = KneserNey(order=order).fit(TEXTS, SIZE)
    for context in ([], TEXTS[0], TEXTS[1][:3], [11, 11, 11], [11, 0, 1]):
        log_probabilities = [model.log_probabilities([*context, w])[-1] for w in range(SIZE)]
        assert np.exp(log_probabilities).sum() == pytest.approx(1, abs=1e-12)
        assert np.isfinite(log_probabilities).all()


def test_sequences_know_nothing_of_each_other():
    model = KneserNey(order=3).fit([[0, 1, 2], [1, 2, 0]], 3)
    # [2 1] would only occur across the border between the two.
    alone = KneserNey(order=3, discounts=model.discounts[0]).fit([[0, 1, 2], [1, 2, 0]][::-1], 3)
    np.testing.assert_array_equal(
        model.log_probabilities([2, 1, 0]), alone.log_probabilities([2, 1, 0])
    )
    plain = Plain([[0, 1, 2], [1, 2, 0]], 3, 3)
    np.testing.assert_allclose(
        model.log_probabilities([2, 1, 0]), plain.log_probabilities([2, 1, 0])
    )


def test_longer_contexts_tell_more():
    """Makes a text in which the last two tokens determine the next, but the last one does not."""
    random = np.random.default_rng(0)
    bits = [random.integers(0, 2, 2).tolist() for _ in range(40)]
    texts = [row + [0] * 48 for row in bits]
    for row in texts:
        for i in range(2, 50):
            row[i] = row[i - 1] ^ row[i - 2]
    random.shuffle(texts)

    def perplexity(order):
        model = KneserNey(order=order).fit(texts[:30], 2)
        return np.exp(-np.mean([model.log_probabilities(row)[2:].mean() for row in texts[30:]]))

    assert perplexity(1) > 1.5
    assert perplexity(2) > 1.5
    assert perplexity(3) < 1.1


def test_arrays_of_any_integer_type_and_nothing_to_ask():
    model = KneserNey(order=3).fit([np.array([0, 1], "uint16"), np.array([2], "int32")], 3)
    assert model.log_probabilities(np.array([2, 1], "int8")).shape == (2,)
    assert model.log_probabilities([]).shape == (0,)


def test_what_cannot_be_is_refused():
    for discounts in ([0.5, 1, 3.5], [-0.1, 1, 1], [0.5]):
        with pytest.raises(ValueError, match="D_1, D_2.*D_3,.*0"):
            KneserNey(order=2, discounts=discounts)
    with pytest.raises(ValueError, match="order=0: must be at least 1"):
        KneserNey(order=0)
    with pytest.raises(ValueError, match="call fit first"):
        KneserNey(order=2).log_probabilities([0])
    for nothing in ([], [[]], [[], []]):
        with pytest.raises(ValueError, match="no tokens to fit"):
            KneserNey(order=2).fit(nothing, 3)
    with pytest.raises(ValueError, match="token ids are 0 to 3; expected 0 to 2"):
        KneserNey(order=2).fit([[0, 3]], 3)
    model = KneserNey(order=2).fit([[0, 1]], 3)
    with pytest.raises(ValueError, match="token ids are -1 to 0"):
        model.log_probabilities([0, -1])
    with pytest.raises(ValueError, match=r"of shape \(1, 1\)"):
        model.log_probabilities([[0]])
    with pytest.raises(ValueError, match="type float64: expected ints"):
        model.log_probabilities([0.5])
