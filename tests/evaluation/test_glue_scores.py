"""The GLUE metrics match scikit-learn and SciPy."""

import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformers.evaluation.glue import glue_scores

GOLDEN = Path(__file__).parents[1] / "golden"
EXPECTED = json.loads((GOLDEN / "classification_scores.json").read_text("utf-8"))
MAKE = runpy.run_path(str(GOLDEN / "make_classification_scores.py"))


@pytest.mark.parametrize("kind", ["labels", "scores"])
def test_classification_metrics_as_the_reference(kind):
    for (found, right), expected in zip(MAKE[kind.upper()], EXPECTED[kind], strict=True):
        for name, value in expected.items():
            if value is None and name == "f1":  # more than two classes
                continue
            result = glue_scores([name], found, right)[name]
            if value is None:
                assert math.isnan(result), (name, found)
            else:
                assert result == pytest.approx(value, abs=1e-12), (name, found)


@pytest.mark.reference
def test_the_golden_scores_are_what_scikit_learn_computes():
    pytest.importorskip("sklearn", reason="needs pip install scikit-learn")
    pytest.importorskip("scipy", reason="needs pip install -e .[dev]")
    live, frozen = MAKE["golden"](), EXPECTED
    for kind in ("labels", "scores"):
        for row, expected in zip(live[kind], frozen[kind], strict=True):
            assert row == pytest.approx(expected, abs=1e-12)


def test_scores_of_any_type_of_number():
    random = np.random.default_rng(1)
    x = random.normal(size=100).astype(np.float32)
    y = random.integers(0, 2, 100)
    expected = np.corrcoef(x, y)[0, 1]
    assert glue_scores(["pearson"], x, y)["pearson"] == pytest.approx(expected, abs=1e-12)
    assert glue_scores(["pearson"], x, y > 0)["pearson"] == pytest.approx(expected, abs=1e-12)


def test_without_scipy_correlations_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    assert glue_scores(["accuracy"], [1], [1]) == {"accuracy": 1.0}
    with pytest.raises(ImportError, match=r"needs scipy: pip install .*\[evaluation\]"):
        glue_scores(["spearman"], [1, 2], [1, 2])


@pytest.mark.parametrize(
    ("metrics", "found", "right", "message"),
    [
        (["recall"], [1], [1], r"unknown metrics \['recall'\]"),
        (["accuracy"], [1, 0], [1], r"shape \(2,\) for references of shape \(1,\)"),
        (["accuracy"], [], [], r"with n at least 1"),
        (["accuracy"], [[1, 0]], [[1, 0]], r"must be \(n,\)"),
        (["accuracy"], ["1", "0"], ["1", "0"], "for labels, their ids"),
        (["f1"], [1, 2], [1, 0], r"labels \[2\]: F1 needs labels"),
        (["pearson"], [1.0], [1.0], "at least two scores"),
        (["spearman"], [1.0, math.nan], [1.0, 2.0], "NaN or infinity .*predictions"),
    ],
)
def test_what_cannot_be_scored(metrics, found, right, message):
    with pytest.raises(ValueError, match=message):
        glue_scores(metrics, found, right)
