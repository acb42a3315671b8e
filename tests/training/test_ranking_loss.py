"""The loss of rerankers, against its formula."""

import keras
import numpy as np
import pytest

from keras_transformers.training import RankingCrossentropy

LABELS = np.array([[0, 1, 0, -1], [1, 0, 1, 0], [0, 0, -1, -1], [1, -1, -1, -1]], "float32")
SCORES = np.random.default_rng(0).normal(size=LABELS.shape).astype("float32") * 3


def by_hand(labels, scores, pointwise):
    losses = np.zeros(labels.shape)
    for row, (kinds, values) in enumerate(zip(labels, scores.astype("float64"), strict=True)):
        others = np.exp(values[kinds == 0]).sum()
        share = (kinds >= 0).sum() / max(1, (kinds == 1).sum())
        for place, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            if kind == 1:
                losses[row, place] = share * -np.log(np.exp(value) / (np.exp(value) + others))
            if kind >= 0:
                likely = 1 / (1 + np.exp(-value))
                losses[row, place] -= pointwise * np.log(likely if kind else 1 - likely)
    return losses


@pytest.mark.parametrize("pointwise", [0.0, 1.0, 0.3])
def test_losses_are_those_of_the_formula(pointwise):
    loss = RankingCrossentropy(pointwise=pointwise)
    found = loss.call(keras.ops.array(LABELS), keras.ops.array(SCORES))
    np.testing.assert_allclose(found, by_hand(LABELS, SCORES, pointwise), rtol=1e-5, atol=1e-6)
    weights = (LABELS >= 0).astype("float32")
    wanted = by_hand(LABELS, SCORES, pointwise).sum() / weights.sum()
    assert float(loss(LABELS, SCORES, weights)) == pytest.approx(wanted, rel=1e-5)


def test_padding_has_no_part_whatever_its_score():
    scores = np.where(LABELS < 0, -1e9, SCORES)
    loss = RankingCrossentropy()
    for other in (scores, np.where(LABELS < 0, 99.0, SCORES)):
        np.testing.assert_allclose(
            loss.call(LABELS, other), by_hand(LABELS, SCORES, 1.0), rtol=1e-5, atol=1e-6
        )


def test_the_softmax_alone_has_no_part_of_a_common_shift():
    loss = RankingCrossentropy(pointwise=0.0)
    np.testing.assert_allclose(
        loss.call(LABELS, SCORES + 5.0), loss.call(LABELS, SCORES), rtol=1e-4, atol=1e-5
    )


def test_it_comes_back_from_its_configuration():
    again = RankingCrossentropy.from_config(RankingCrossentropy(pointwise=0.3).get_config())
    assert again.pointwise == 0.3
    with pytest.raises(ValueError, match="pointwise=-1"):
        RankingCrossentropy(pointwise=-1)
