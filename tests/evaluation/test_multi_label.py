"""Scores of several labels per text, against scikit-learn."""

import numpy as np
import pytest

from keras_transformers.evaluation import best_thresholds, multi_label_scores

RANDOM = np.random.default_rng(0)


def data(seed, texts=40, labels=5):
    random = np.random.default_rng(seed)
    references = (random.random((texts, labels)) < [0.1, 0.3, 0.5, 0.9, 0.0]).astype(int)
    # Rounded, so that some are equal.
    return np.round(0.4 * references + 0.6 * random.random((texts, labels)), 1), references


@pytest.mark.parametrize("seed", range(5))
def test_scores(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    probabilities, references = data(seed)
    thresholds = np.array([0.3, 0.4, 0.5, 0.6, 0.7])
    found = multi_label_scores(probabilities, references, thresholds=thresholds)
    given = probabilities > thresholds
    for average in ("micro", "macro"):
        expected = metrics.f1_score(references, given, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(expected)
    known = references.any(axis=0)
    expected = metrics.average_precision_score(references[:, known], probabilities[:, known])
    assert found["mean_average_precision"] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_is_better(seed):
    probabilities, references = data(seed)
    best = best_thresholds(probabilities, references)
    assert best[4] == 0.5  # no text has the last label
    for label in range(4):
        column, truth = probabilities[:, [label]], references[:, [label]]
        found = multi_label_scores(column, truth, thresholds=best[label])["micro_f1"]
        others = [
            multi_label_scores(column, truth, thresholds=x)["micro_f1"]
            for x in np.linspace(0, 1, 101)
        ]
        assert found == pytest.approx(max(others))


def test_errors():
    with pytest.raises(ValueError, match=r"shape \(2,\), references of \(2,\): expected the same"):
        multi_label_scores([0.1, 0.2], [0, 1])
    with pytest.raises(ValueError, match="at least one text"):
        best_thresholds(np.zeros((0, 2)), np.zeros((0, 2)))
