"""The recipes of tagging, question answering and GLUE, from files to figures."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest

from keras_transformers.evaluation.glue import METRICS

RECIPES = Path(__file__).parents[2] / "recipes"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["ann", "bob", "lives", "works", "in", "bonn", "rome", "who", "where", "?", "."]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return tmp_path


def run(monkeypatch, recipe, folder, **changes):
    """Runs a recipe in its process; returns what it wrote to metrics.json."""
    values = {
        "model": "bert_tiny",
        "vocabulary": folder / "vocab.txt",
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 3e-3,
        "max_sequence_length": 24,
        "runs_dir": folder / "runs",
        "name": "run",
    } | changes
    options = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in values.items()
    ]
    monkeypatch.setattr(sys, "argv", [recipe, *options])
    runpy.run_path(str(RECIPES / f"{recipe}.py"), run_name="__main__")
    return json.loads((folder / "runs" / "run" / "metrics.json").read_text())


def people():
    return [(w, v, c) for w in ("ann", "bob") for v in ("lives", "works") for c in ("bonn", "rome")]


def conll(folder, name, copies):
    blocks = [f"{w} B-PER\n{v} O\nin O\n{c} B-LOC\n. O\n" for w, v, c in people()]
    (folder / name).write_text("\n".join(blocks * copies))
    return folder / name


def test_tagging(folder, monkeypatch, capsys):
    files = {"train_file": conll(folder, "train", 12), "dev_file": conll(folder, "dev", 1)}
    metrics = run(monkeypatch, "tagging", folder, **files, test_file=files["dev_file"], epochs=3)
    assert metrics["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert metrics["dev_entity_f1"] == metrics["test_entity_f1"] > 0.9
    assert "PER" in capsys.readouterr().out, "scores by type"
    names = {path.name for path in (folder / "runs" / "run").iterdir()}
    assert names >= {"best.weights.h5", "last.weights.h5", "config.json", "tensorboard"}


@pytest.mark.slow
@pytest.mark.parametrize("layers", ["weighted_sum_all", "1"])
def test_tagging_by_features(folder, monkeypatch, layers):
    files = {"train_file": conll(folder, "train", 12), "dev_file": conll(folder, "dev", 1)}
    metrics = run(
        monkeypatch,
        "feature_based",
        folder,
        **files,
        test_file=files["dev_file"],
        layers=layers,
        units=32,
        learning_rate=1e-2,
        epochs=8,
        export=folder / "saved" / "1",
    )
    assert metrics["dev_entity_f1"] == metrics["test_entity_f1"] == metrics["best"] > 0.9
    described = folder / "saved" / "1" / "assets.extra" / "keras_transformers.json"
    scores = json.loads(described.read_text())["scores"]
    assert scores == {name: metrics[name] for name in ("dev_entity_f1", "test_entity_f1")}


def squad_file(folder, copies, *, impossible=False):
    paragraphs = []
    for number, (w, v, c) in enumerate(people() * copies):
        context = f"{w} {v} in {c} ."
        answers = [{"text": c, "answer_start": context.index(c)}]
        question = {"id": f"q{number}", "question": "where ?", "answers": answers}
        if impossible and number % 2:
            question |= {"question": "who ?", "answers": [], "is_impossible": True}
        paragraphs.append({"context": context, "qas": [question]})
    data = {"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path = folder / "squad.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.slow
def test_questions_with_and_without_answers(folder, monkeypatch):
    path = squad_file(folder, 12, impossible=True)
    metrics = run(
        monkeypatch,
        "question_answering",
        folder,
        train_file=path,
        dev_file=path,
        epochs=3,
        doc_stride=8,
        max_question_length=8,
        no_answer_threshold=0.0,
    )
    assert metrics["dev_f1"] > 60.0
    assert metrics["dev_best_f1"] >= metrics["dev_f1"]
    answers = json.loads((folder / "runs" / "run" / "dev_answers.json").read_text())
    assert len(answers) == 96
    assert set(answers) == {f"q{number}" for number in range(96)}


def test_a_task_of_glue_and_its_submission(folder, monkeypatch):
    rows = [f"{w} {v} in {c} .\t{int(c == 'bonn')}" for w, v, c in people()]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows * 12]) + "\n")
    texts = [f"{i}\t{row.split(chr(9))[0]}" for i, row in enumerate(rows)]
    (folder / "test.tsv").write_text("\n".join(["index\tsentence", *texts]) + "\n")
    metrics = run(
        monkeypatch,
        "glue",
        folder,
        task="sst2",
        train_file=folder / "train.tsv",
        dev_file=folder / "train.tsv",
        submit_file=folder / "test.tsv",
        learning_rate=1e-3,
        epochs=5,
    )
    assert metrics["dev_accuracy"] > 0.9
    lines = (folder / "runs" / "run" / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 1 + 8


@pytest.mark.slow
def test_a_regression_task(folder, monkeypatch):
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    rows = []
    for i, (w, v, c) in enumerate(people() * 12):
        score = 5 - 2 * (w != "ann") - 2 * (c != "bonn")
        rows.append(f"{i}\t{w} {v} in {c} .\tann lives in bonn .\t{score}\tNEUTRAL")
    (folder / "sick.txt").write_text("\n".join([header, *rows]) + "\n")
    metrics = run(
        monkeypatch,
        "glue",
        folder,
        task="sick_relatedness",
        train_file=folder / "sick.txt",
        dev_file=folder / "sick.txt",
        epochs=3,
    )
    assert metrics["dev_pearson"] > 0.6
    assert -1 <= metrics["dev_spearman"] <= 1


def test_a_correlation_that_is_never_a_number_has_no_best_epoch(folder, monkeypatch, capsys):
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    rows = [f"{i}\t{w} {v}\tin {c}\t{1 + i % 5}\tNEUTRAL" for i, (w, v, c) in enumerate(people())]
    (folder / "sick.txt").write_text("\n".join([header, *rows]) + "\n")
    files = {"train_file": folder / "sick.txt", "dev_file": folder / "sick.txt"}
    # As where the model gives all examples the same answer.
    monkeypatch.setitem(METRICS, "pearson", lambda *answers: math.nan)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "glue", folder, task="sick_relatedness", **files)
    assert stopped.value.code == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: val_pearson was NaN in all of 1 epochs")
    assert "the last weights are in" in error


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("tagging", {"train_file": "none.txt", "dev_file": "none.txt"}, "none.txt: no such file"),
        ("question_answering", {"train_file": "none.json"}, "none.json"),
        (
            "feature_based",
            {"train_file": "none.txt", "dev_file": "none.txt", "grid": True},
            "--grid is for fine-tuning",
        ),
        ("glue", {"task": "sst3", "train_file": "none.tsv"}, "there is no task 'sst3'"),
        ("glue", {"task": "sst2", "train_file": "none.tsv"}, "none.tsv: no such file"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(
    folder, monkeypatch, capsys, recipe, changes, message
):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, recipe, folder, **changes)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
