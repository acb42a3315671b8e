"""Answer scores match SQuAD's official scripts."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from keras_transformers.evaluation.squad import normalize_answer, squad_scores, squad_v2_scores

GOLDEN = Path(__file__).parents[1] / "golden"
EXPECTED = json.loads((GOLDEN / "answer_scores.json").read_text("utf-8"))
MAKE = runpy.run_path(str(GOLDEN / "make_answer_scores.py"))


def test_squad_as_the_official_script():
    for (prediction, references, _), expected in zip(MAKE["CASES"], EXPECTED["v1"], strict=True):
        if expected is None:  # no answer: not in SQuAD 1.1
            continue
        scores = squad_scores({"q": prediction}, {"q": references})
        assert scores.exact_match == expected["exact_match"], prediction
        assert scores.f1 == pytest.approx(expected["f1"], abs=1e-9), prediction


@pytest.mark.parametrize("threshold", [None, -3.0, 0.0, 1.5, 100.0])
def test_squad_v2_as_the_official_script(threshold):
    predictions, references, null_scores = (
        {str(i): case[part] for i, case in enumerate(MAKE["CASES"])} for part in range(3)
    )
    # No threshold gives the same scores as one that is never reached.
    expected = EXPECTED["v2"]["100.0" if threshold is None else str(threshold)]
    scores = squad_v2_scores(predictions, references, null_scores=null_scores, threshold=threshold)
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
    # Null scores are distinct, so that the threshold really reaches its score.
    random = np.random.default_rng(0)
    ids = [str(i) for i in range(40)]
    references = {i: ["x y"] if random.random() < 0.5 else [] for i in ids}
    predictions = {i: random.choice(["x y", "x", "z"]) for i in ids}
    null_scores = {i: float(random.normal(-1 if references[i] else 1, 1)) for i in ids}
    best = squad_v2_scores(predictions, references, null_scores=null_scores).best_f1
    again = squad_v2_scores(
        predictions, references, null_scores=null_scores, threshold=best.threshold
    )
    assert again.overall.f1 == pytest.approx(best.score)
    assert 0 < again.overall.f1 < 100
    others = [
        squad_v2_scores(predictions, references, null_scores=null_scores, threshold=t).overall.f1
        for t in null_scores.values()
    ]
    assert max(others) == pytest.approx(best.score)


def test_squad_v2_with_one_kind_of_question():
    scores = squad_v2_scores({"a": "x"}, {"a": ["x"]})
    assert (scores.has_answer.total, scores.no_answer, scores.best_f1) == (1, None, None)
    assert squad_v2_scores({"a": ""}, {"a": []}).has_answer is None


@pytest.mark.parametrize("score", [squad_scores, squad_v2_scores])
def test_answers_that_do_not_fit_the_questions(score):
    with pytest.raises(
        ValueError,
        match="1 ids .*missing .*'b'.*2 questions",
    ):
        score({"a": "x"}, {"a": ["x"], "b": ["y"]})
    with pytest.raises(ValueError, match="1 ids .*unknown .*'c'"):
        score({"a": "x", "c": "x"}, {"a": ["x"]})
    with pytest.raises(ValueError, match="no questions"):
        score({}, {})


def test_questions_without_reference_are_not_of_squad_1():
    with pytest.raises(ValueError, match="1 questions.*'a'"):
        squad_scores({"a": ""}, {"a": []})
    with pytest.raises(ValueError, match=r"threshold=0\.5 needs null_scores"):
        squad_v2_scores({"a": ""}, {"a": []}, threshold=0.5)
    with pytest.raises(ValueError, match="1 ids .*missing .*'a'"):
        squad_v2_scores({"a": ""}, {"a": []}, null_scores={})


def test_normalizing_an_answer():
    assert normalize_answer("An  apple, a day—the U.S.\u00a0way") == ("apple day— us way")
