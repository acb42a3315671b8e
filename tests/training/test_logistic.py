"""Logistic regression equals scikit-learn's, for one label per row and for several."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from keras_transformers.training import logistic_regression


def vectors(count, width=30):
    rows = np.random.default_rng(0).normal(size=(count, width))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("strength", [1.0, 0.1, 30.0])
@pytest.mark.parametrize(("count", "classes"), [(16, 2), (90, 2), (60, 5)])
def test_one_label_per_row_equals_scikit_learn(count, classes, strength):
    rows, truth = vectors(count), np.arange(count) % classes
    reference = LogisticRegression(C=strength, tol=1e-10, max_iter=5000).fit(rows, truth)
    kernel, bias = logistic_regression(
        rows, np.eye(classes)[truth], exclusive=True, strength=strength
    )
    assert kernel.shape == (30, classes)
    powers = np.exp(rows @ kernel + bias)
    found = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, reference.predict_proba(rows), atol=1e-5)


def test_several_labels_equal_one_regression_each():
    rows = vectors(60)
    has = (np.random.default_rng(1).random((60, 4)) < 0.4).astype(int)
    estimator = LogisticRegression(tol=1e-10, max_iter=5000)
    reference = OneVsRestClassifier(estimator).fit(rows, has)
    kernel, bias = logistic_regression(rows, has, exclusive=False)
    found = 1 / (1 + np.exp(-(rows @ kernel + bias)))
    np.testing.assert_allclose(found, reference.predict_proba(rows), atol=1e-5)


def test_the_gradient_is_zero():
    rows, has = vectors(40), np.eye(4)[np.arange(40) % 4]
    kernel, bias = logistic_regression(rows, has, exclusive=True, strength=2.0)
    powers = np.exp(rows @ kernel + bias)
    errors = powers / powers.sum(axis=1, keepdims=True) - has
    np.testing.assert_allclose(rows.T @ errors + kernel / 2.0, 0, atol=1e-8)
    np.testing.assert_allclose(errors.sum(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        ([[1, 0]] * 3, {"exclusive": True}, r"\(4, 2\) for targets of \(3, 2\)"),
        ([[1, 0]] * 4, {"exclusive": True}, "label 0 of 2: 4 of 4 rows have it"),
        ([[1], [0], [1], [0]], {"exclusive": True}, "one of several labels; use exclusive=False"),
        ([[1], [0], [1], [0]], {"exclusive": False, "strength": 0.0}, "strength=0.0: must be ab"),
    ],
)
def test_wrong_calls(targets, options, message):
    with pytest.raises(ValueError, match=message):
        logistic_regression(vectors(4, 2), targets, **options)
