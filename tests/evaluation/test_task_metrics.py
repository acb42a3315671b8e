"""Scores of tasks, equal to the official scripts, seqeval, scikit-learn and SciPy."""

import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest

from keras_transformers.evaluation import classification as classification_metrics
from keras_transformers.evaluation import entities as tagging_metrics
from keras_transformers.evaluation import squad as answer_metrics
from keras_transformers.evaluation.entities import Entity, entities, entity_scores
from keras_transformers.evaluation.squad import squad, squad_v2

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def maker(name):
    return runpy.run_path(str(GOLDEN / f"make_{name}.py"))


# --- answers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answer_cases():
    return maker("answer_scores")["CASES"]


def test_squad_as_the_official_script(answer_cases):
    for (prediction, references, _), expected in zip(
        answer_cases, golden("answer_scores")["v1"], strict=True
    ):
        if expected is None:  # no answer: not in SQuAD 1.1
            continue
        scores = squad({"q": prediction}, {"q": references})
        assert scores.exact_match == expected["exact_match"], prediction
        assert scores.f1 == pytest.approx(expected["f1"], abs=1e-9), prediction


@pytest.mark.parametrize("threshold", [None, -3.0, 0.0, 1.5, 100.0])
def test_squad_v2_as_the_official_script(answer_cases, threshold):
    predictions, references, null_scores = (
        {str(i): case[part] for i, case in enumerate(answer_cases)} for part in range(3)
    )
    # Without a threshold as with one that is never reached.
    expected = golden("answer_scores")["v2"]["100.0" if threshold is None else str(threshold)]
    scores = squad_v2(predictions, references, null_scores=null_scores, threshold=threshold)
    for prefix, part in (
        ("", scores.overall),
        ("HasAns_", scores.has_answer),
        ("NoAns_", scores.no_answer),
    ):
        assert part.exact_match == pytest.approx(expected[f"{prefix}exact"], abs=1e-9)
        assert part.f1 == pytest.approx(expected[f"{prefix}f1"], abs=1e-9)
        assert part.total == expected[f"{prefix}total"]
    for name, best in (("exact", scores.best_exact_match), ("f1", scores.best_f1)):
        assert best.score == pytest.approx(expected[f"best_{name}"], abs=1e-9)
        assert best.threshold == expected[f"best_{name}_thresh"]


def test_the_best_threshold_reaches_its_score():
    # Distinct null scores: then the threshold really gives what it promises.
    random = np.random.default_rng(0)
    ids = [str(i) for i in range(40)]
    references = {i: ["x y"] if random.random() < 0.5 else [] for i in ids}
    predictions = {i: random.choice(["x y", "x", "z"]) for i in ids}
    null_scores = {i: float(random.normal(-1 if references[i] else 1, 1)) for i in ids}
    best = squad_v2(predictions, references, null_scores=null_scores).best_f1
    again = squad_v2(predictions, references, null_scores=null_scores, threshold=best.threshold)
    assert again.overall.f1 == pytest.approx(best.score)
    assert 0 < again.overall.f1 < 100
    others = [
        squad_v2(predictions, references, null_scores=null_scores, threshold=t).overall.f1
        for t in null_scores.values()
    ]
    assert max(others) == pytest.approx(best.score)


def test_squad_v2_with_one_kind_of_question():
    scores = squad_v2({"a": "x"}, {"a": ["x"]})
    assert (scores.has_answer.total, scores.no_answer, scores.best_f1) == (1, None, None)
    assert squad_v2({"a": ""}, {"a": []}).has_answer is None


@pytest.mark.parametrize("score", [squad, squad_v2])
def test_answers_that_do_not_fit_the_questions(score):
    with pytest.raises(ValueError, match="lack 1 ids, such as 'b'.*exactly the 2 questions"):
        score({"a": "x"}, {"a": ["x"], "b": ["y"]})
    with pytest.raises(ValueError, match="are of no question with 1 ids, such as 'c'"):
        score({"a": "x", "c": "x"}, {"a": ["x"]})
    with pytest.raises(ValueError, match="no questions"):
        score({}, {})


def test_questions_without_reference_are_not_of_squad_1():
    with pytest.raises(ValueError, match="1 questions have no reference, such as 'a'"):
        squad({"a": ""}, {"a": []})
    with pytest.raises(ValueError, match=r"threshold=0\.5 needs null_scores"):
        squad_v2({"a": ""}, {"a": []}, threshold=0.5)
    with pytest.raises(ValueError, match="lack 1 ids, such as 'a'"):
        squad_v2({"a": ""}, {"a": []}, null_scores={})


def test_normalizing_an_answer():
    assert answer_metrics.normalize_answer("An  apple, a day—the U.S.\u00a0way") == (
        "apple day— us way"
    )


# --- entities --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entity_cases():
    functions = maker("entity_scores")
    return functions["CASES"] + functions["random_cases"]()


def as_report(scores):
    rows = {**scores.types, "micro avg": scores.overall}
    return {
        name: {
            "precision": counts.precision,
            "recall": counts.recall,
            "f1-score": counts.f1,
            "support": counts.expected,
        }
        for name, counts in rows.items()
    }


def assert_same_report(scores, expected):
    found = as_report(scores)
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        assert found[name] == pytest.approx(row, abs=1e-12), name


def test_entities_as_seqeval(entity_cases):
    for case, expected in zip(entity_cases, golden("entity_scores")["entities"], strict=True):
        for side, reference in zip(case, expected, strict=True):
            found = entities(side.split())
            assert found == [Entity(kind, first, last + 1) for kind, first, last in reference], side


def test_entity_scores_as_seqeval(entity_cases):
    expected = golden("entity_scores")
    for (found, right), reference in zip(entity_cases, expected["single"], strict=True):
        if reference is not None:
            assert_same_report(entity_scores([found.split()], [right.split()]), reference)
    sides = zip(*entity_cases, strict=True)
    found, right = ([side.split() for side in column] for column in sides)
    assert_same_report(entity_scores(found, right), expected["all"])


def test_no_entities_score_nothing():
    scores = entity_scores([["O", "O"]], [["O", "O"]])
    assert (scores.overall.f1, scores.types) == (0.0, {})
    assert "all" in str(scores)


def test_sentences_do_not_run_together():
    split = entity_scores([["B-PER"], ["I-PER"]], [["B-PER"], ["B-PER"]])
    assert (split.overall.correct, split.overall.predicted) == (2, 2)


def test_labels_that_do_not_fit():
    with pytest.raises(ValueError, match="1 predicted sentences for 2"):
        entity_scores([["O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="sentence 1: 1 predicted labels for 2 words"):
        entity_scores([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError, match="0 predicted sentences for 0"):
        entity_scores([], [])
    for label in ("S-PER", "PER", "B-", "o", ""):
        with pytest.raises(ValueError, match=f"label '{label}' of word 1"):
            entities(["O", label])


@pytest.mark.reference
def test_the_golden_entities_are_what_seqeval_computes():
    pytest.importorskip("seqeval", reason="needs pip install seqeval")
    assert json.loads(json.dumps(maker("entity_scores")["golden"]())) == golden("entity_scores")


# --- labels and scores -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def score_cases():
    functions = maker("classification_scores")
    return {"labels": functions["LABELS"], "scores": functions["SCORES"]}


@pytest.mark.parametrize("kind", ["labels", "scores"])
def test_classification_metrics_as_the_reference(score_cases, kind):
    for (found, right), expected in zip(
        score_cases[kind], golden("classification_scores")[kind], strict=True
    ):
        for name, value in expected.items():
            if value is None and name == "f1":  # more than two classes
                continue
            result = classification_metrics.scores([name], found, right)[name]
            if value is None:
                assert math.isnan(result), (name, found)
            else:
                assert result == pytest.approx(value, abs=1e-12), (name, found)


@pytest.mark.reference
def test_the_golden_scores_are_what_scikit_learn_computes():
    pytest.importorskip("sklearn", reason="needs pip install scikit-learn")
    pytest.importorskip("scipy", reason="needs pip install -e .[dev]")
    live, frozen = maker("classification_scores")["golden"](), golden("classification_scores")
    for kind in ("labels", "scores"):
        for row, expected in zip(live[kind], frozen[kind], strict=True):
            assert row == pytest.approx(expected, abs=1e-12)


def test_correlations_live():
    stats = pytest.importorskip("scipy.stats", reason="needs pip install -e .[dev]")
    random = np.random.default_rng(1)
    x = random.normal(size=100).astype(np.float32)
    y = np.round(x + random.normal(size=100), 1)
    scores = classification_metrics.scores(["pearson", "spearman"], x, y)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-6)
    assert scores["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize(
    ("metrics", "found", "right", "message"),
    [
        (["recall"], [1], [1], r"unknown metrics \['recall'\]"),
        (["accuracy"], [1, 0], [1], r"shape \(2,\) for references of shape \(1,\)"),
        (["accuracy"], [], [], r"n at least 1"),
        (["accuracy"], [[1, 0]], [[1, 0]], r"expected \(n,\)"),
        (["accuracy"], ["1", "0"], ["1", "0"], "labels as ids"),
        (["f1"], [1, 2], [1, 0], r"labels \[2\]: F1 is that of label 1"),
        (["pearson"], [1.0], [1.0], "two scores or more"),
        (["spearman"], [1.0, math.nan], [1.0, 2.0], "NaN or infinite among the predictions"),
    ],
)
def test_what_cannot_be_scored(metrics, found, right, message):
    with pytest.raises(ValueError, match=message):
        classification_metrics.scores(metrics, found, right)


def test_the_report_is_a_table():
    scores = entity_scores([["B-PER", "O", "B-ORG"]], [["B-PER", "O", "O"]])
    assert str(scores).splitlines() == [
        "     precision  recall     f1  expected",
        "ORG     0.0000  0.0000 0.0000         0",
        "PER     1.0000  1.0000 1.0000         1",
        "all     0.5000  1.0000 0.6667         1",
    ]
    assert tagging_metrics.Counts(0, 0, 0).f1 == 0.0
