"""The recipe of multiple choice, from files to figures and an export."""

import json

import pytest
from checks import says
from recipe_runs import error_of, run, save_encoder, shown

import keras_transformers as kt

WORDS = ["ann", "bob", "lives", "works", "in", "bonn", "rome", "?", "."]
HEADER = "video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Writes an encoder, and SWAG's files in which the ending with "bonn" is right."""
    folder = tmp_path_factory.mktemp("choices")
    save_encoder(folder, WORDS)
    rows = []
    for i in range(48):
        endings = ["in rome .", "works .", "ann ?"]
        endings.insert(i % 4, "in bonn .")
        who = ("ann", "bob")[i % 2]
        rows.append(f"v,{i},{who} . {who} lives,{who} .,{who} lives,gold,{','.join(endings)}")
    labelled = [f"{row},{i % 4}" for i, row in enumerate(rows)]
    (folder / "train.csv").write_text("\n".join([f"{HEADER},label", *labelled]) + "\n")
    (folder / "val.csv").write_text("\n".join([f"{HEADER},label", *labelled[:8]]) + "\n")
    (folder / "test.csv").write_text("\n".join([HEADER, *rows[:8]]) + "\n")
    return folder


def options(folder, **changes):
    return {
        "weights": folder / "encoder",
        "train_file": folder / "train.csv",
        "dev_file": folder / "val.csv",
        "epochs": 4,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "max_sequence_length": 24,
        "runs_dir": folder / "runs",
    } | changes


@pytest.mark.slow
def test_a_toy_is_learnt_measured_and_exported(folder):
    export = folder / "exported" / "1"
    given = options(folder, test_file=folder / "val.csv", export=export)
    outcome = run("multiple_choice", **given)
    metrics = outcome.metrics
    assert metrics["dev_accuracy"] == metrics["test_accuracy"] == metrics["best"] == 1
    assert metrics["dev_chance"] == metrics["test_chance"] == 0.25
    table = shown(outcome.folder)["samples"]
    assert table.splitlines()[0].startswith("| text | choices | expected | answer: choice |")
    assert "| ann . | ann lives in bonn ." in table
    (row,) = kt.saved_model.predict(export, {"text": ["bob ."], "choices": [["rome .", "bonn ."]]})
    assert row["choice"] == "bonn ."
    scores = json.loads((export / "assets.extra/keras_transformers.json").read_text())["scores"]
    assert scores["dev_accuracy"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": "none.csv"}, "none.csv: no such file"),
        ({"dev_file": "test.csv"}, "test.csv: no labels"),
        ({"train_file": "encoder/vocab.txt"}, "expected SWAG's .csv, or .jsonl"),
        ({"max_sequence_length": 3}, "--max-sequence-length 3: expected at least 5"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    paths = {name: folder / value for name, value in changes.items() if "file" in name}
    given = options(folder, **{"runs_dir": tmp_path / "runs"} | changes | paths)
    assert says(error_of("multiple_choice", capsys, **given), message)
    assert not (tmp_path / "runs").exists()
