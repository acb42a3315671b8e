"""Rows of outputs as their task's answers."""

import dataclasses

import numpy as np
import pytest

from keras_transformers import pipelines
from keras_transformers.pipelines import results
from keras_transformers.tasks.answers import (
    answer_type,
    answer_type_of,
    answer_types,
    rows,
    typed,
)

ROWS = {
    "classification": (
        {"label": "good", "probabilities": [0.25, 0.75], "label_index": 1},
        results.Classification("good", [0.25, 0.75], 1),
    ),
    "zero_shot_classification": (
        {"label": "a", "probabilities": [0.75, 0.25], "label_index": 0, "num_labels": 2},
        results.ZeroShotLabel("a", [0.75, 0.25], 0),
    ),
    "question_answering": (
        {"answer": "a", "score": 1.0, "start": 0, "end": 1, "null_score": 0.5},
        results.Answer("a", 1.0, 0, 1, 0.5),
    ),
    "embedding": ({"embedding": [1.0]}, results.Embedding([1.0])),
    "translation": ({"translation": "a", "score": -1.0}, results.Translation("a", -1.0)),
}


@pytest.mark.parametrize("task", ROWS)
def test_a_row_becomes_its_tasks_answer(task):
    row, wanted = ROWS[task]
    assert typed(row, answer_type(task)) == wanted
    assert answer_type_of(row).type is type(wanted)


def test_other_rows_stay_as_they_are():
    row = {"anything": 1}
    assert typed(row, answer_type("classification")) == row
    assert answer_type("no task") is None
    assert typed(row, None) == row
    assert answer_type_of(row) is None


def test_rows_are_cut_to_what_their_task_counts():
    outputs = {"tokens": [[["a"], [""]]], "probabilities": [[[0.5], [0.0]]], "num_masks": [1]}
    arrays = {name: np.array(value) for name, value in outputs.items()}
    answer = answer_type("fill_mask")
    (row,) = rows(arrays, ["tokens", "probabilities"], answer)
    assert typed(row, answer) == results.MaskedTokens([["a"]], [[0.5]])
    assert list(rows(arrays, ["tokens", "probabilities"])) == [row]  # an unknown task
    (other,) = rows(arrays, ["tokens", "probabilities"], answer_type("tagging"))
    assert other == row  # another signature than the answer's


def test_every_answer_of_the_room_is_a_tasks():
    shown = {getattr(pipelines, name) for name in dir(pipelines)}
    kinds = {
        each
        for each in shown
        if isinstance(each, type) and issubclass(each, results.Result) and each != results.Result
    }
    # Of a generator's `choose`, and of `chat` with tools, not of its task.
    others = {results.Selection, results.Reply}
    assert {answer.type for answer in answer_types()} == kinds - others
    for answer in answer_types():
        assert dataclasses.is_dataclass(answer.type)
