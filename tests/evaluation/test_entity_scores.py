"""Entities and their scores match seqeval."""

import json
import runpy
from pathlib import Path

import pytest

from keras_transformers.evaluation.entities import Counts, Entity, entities, entity_scores

GOLDEN = Path(__file__).parents[1] / "golden"
EXPECTED = json.loads((GOLDEN / "entity_scores.json").read_text("utf-8"))
MAKE = runpy.run_path(str(GOLDEN / "make_entity_scores.py"))
CASES = MAKE["CASES"] + MAKE["random_cases"]()


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


def test_entities_as_seqeval():
    for case, expected in zip(CASES, EXPECTED["entities"], strict=True):
        for side, reference in zip(case, expected, strict=True):
            found = entities(side.split())
            assert found == [Entity(kind, first, last + 1) for kind, first, last in reference], side


def test_entity_scores_as_seqeval():
    for (found, right), reference in zip(CASES, EXPECTED["single"], strict=True):
        if reference is not None:
            assert_same_report(entity_scores([found.split()], [right.split()]), reference)
    sides = zip(*CASES, strict=True)
    found, right = ([side.split() for side in column] for column in sides)
    assert_same_report(entity_scores(found, right), EXPECTED["all"])


def test_no_entities_score_nothing():
    scores = entity_scores([["O", "O"]], [["O", "O"]])
    assert (scores.overall.f1, scores.types) == (0.0, {})
    assert "all" in str(scores)


def test_sentences_do_not_run_together():
    split = entity_scores([["B-PER"], ["I-PER"]], [["B-PER"], ["B-PER"]])
    assert (split.overall.correct, split.overall.predicted) == (2, 2)


def test_labels_that_do_not_fit():
    with pytest.raises(ValueError, match="1 predicted.*2"):
        entity_scores([["O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="1: 1 predicted.*2 words"):
        entity_scores([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError, match="0 predicted.*0"):
        entity_scores([], [])
    for label in ("S-PER", "PER", "B-", "o", ""):
        with pytest.raises(ValueError, match=f"'{label}'.*1"):
            entities(["O", label])


def test_the_report_is_a_table():
    scores = entity_scores([["B-PER", "O", "B-ORG"]], [["B-PER", "O", "O"]])
    assert str(scores).splitlines() == [
        "     precision  recall     f1  expected",
        "ORG     0.0000  0.0000 0.0000         0",
        "PER     1.0000  1.0000 1.0000         1",
        "all     0.5000  1.0000 0.6667         1",
    ]
    assert Counts(0, 0, 0).f1 == 0.0


@pytest.mark.reference
def test_the_golden_entities_are_what_seqeval_computes():
    pytest.importorskip("seqeval", reason="needs pip install seqeval")
    assert json.loads(json.dumps(MAKE["golden"]())) == EXPECTED
