"""The recipes of tagging, question answering and GLUE, from files to figures."""

import importlib.util
import json
import math

import pytest
from recipe_runs import error_of, run, save_encoder, shown

from keras_transformers.evaluation import glue

WORDS = ["ann", "bob", "lives", "works", "in", "bonn", "rome", "who", "where", "?", "."]
PEOPLE = [(w, v, c) for w in ("ann", "bob") for v in ("lives", "works") for c in ("bonn", "rome")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Writes an encoder, and the files of each task."""
    folder = tmp_path_factory.mktemp("tasks")
    save_encoder(folder, WORDS)
    blocks = [f"{w} B-PER\n{v} O\nin O\n{c} B-LOC\n. O\n" for w, v, c in PEOPLE]
    (folder / "train.conll").write_text("\n".join(blocks * 12))
    (folder / "dev.conll").write_text("\n".join(blocks))
    rows = [f"{w} {v} in {c} .\t{int(c == 'bonn')}" for w, v, c in PEOPLE]
    (folder / "sst2.tsv").write_text("\n".join(["sentence\tlabel", *rows * 12]) + "\n")
    texts = [f"{i}\t{row.split(chr(9))[0]}" for i, row in enumerate(rows)]
    (folder / "test.tsv").write_text("\n".join(["index\tsentence", *texts]) + "\n")
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    rows = []
    for i, (w, v, c) in enumerate(PEOPLE * 12):
        score = 5 - 2 * (w != "ann") - 2 * (c != "bonn")
        rows.append(f"{i}\t{w} {v} in {c} .\tann lives in bonn .\t{score}\tNEUTRAL")
    (folder / "sick.txt").write_text("\n".join([header, *rows]) + "\n")
    (folder / "squad.json").write_text(json.dumps(questions()))
    return folder


def questions():
    """Returns questions about where people live or work; every second one has no answer."""
    paragraphs = []
    for number, (w, v, c) in enumerate(PEOPLE * 12):
        context = f"{w} {v} in {c} ."
        question = {"id": f"q{number}", "question": "where ?"}
        if number % 2:
            question |= {"question": "who ?", "answers": [], "is_impossible": True}
        else:
            question |= {"answers": [{"text": c, "answer_start": context.index(c)}]}
        paragraphs.append({"context": context, "qas": [question]})
    return {"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}


def options(folder, **changes):
    return {
        "weights": folder / "encoder",
        "epochs": 3,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "max_sequence_length": 24,
        "runs_dir": folder / "runs",
    } | changes


def tagged(folder, **changes):
    dev = folder / "dev.conll"
    files = {"train_file": folder / "train.conll", "dev_file": dev, "test_file": dev}
    return options(folder, **files, **changes)


def scores_of(export):
    return json.loads((export / "assets.extra/keras_transformers.json").read_text())["scores"]


@pytest.mark.slow
def test_tagging(folder):
    outcome = run("tagging", **tagged(folder))
    assert outcome.metrics["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert outcome.metrics["dev_entity_f1"] == outcome.metrics["test_entity_f1"] > 0.9
    assert "PER" in outcome.printed, "scores by type"
    names = {path.name for path in outcome.folder.iterdir()}
    assert names >= {"best.weights.h5", "last.weights.h5", "config.json", "tensorboard"}
    assert "| ann lives in bonn . | B-PER O O B-LOC O | " in shown(outcome.folder)["samples"]
    for part in ("dev", "test"):
        report = json.loads((outcome.folder / f"report_{part}.json").read_text("utf-8"))
        assert report["figures"]["entity_f1"] == outcome.metrics[f"{part}_entity_f1"]
        assert {f"report_{part}.txt", f"report_{part}_confusion.svg"} <= names
        assert report["findings"][0] in outcome.printed


@pytest.mark.slow
@pytest.mark.parametrize("layers", ["weighted_sum_all", "1"])
def test_tagging_by_features(folder, layers):
    export = folder / f"features_{layers}" / "1"
    shape = {"layers": layers, "units": 16, "num_recurrent_layers": 1}
    outcome = run("feature_based", **tagged(folder, **shape, epochs=5, export=export, name=layers))
    metrics = outcome.metrics
    assert metrics["dev_entity_f1"] == metrics["test_entity_f1"] == metrics["best"] > 0.9
    assert outcome.json("report_test.json")["figures"]["entity_f1"] == metrics["test_entity_f1"]
    names = ("dev_entity_f1", "test_entity_f1")
    assert scores_of(export) == {name: metrics[name] for name in names}


@pytest.mark.slow
def test_questions_with_and_without_answers(folder):
    outcome = run(
        "question_answering",
        **options(
            folder,
            train_file=folder / "squad.json",
            dev_file=folder / "squad.json",
            doc_stride=8,
            max_question_length=8,
            no_answer_threshold=0.0,
        ),
    )
    assert outcome.metrics["dev_f1"] > 60.0
    report = json.loads((outcome.folder / "report_dev.json").read_text("utf-8"))
    assert report["figures"]["f1"] == pytest.approx(outcome.metrics["dev_f1"])
    assert outcome.metrics["dev_best_f1"] >= outcome.metrics["dev_f1"]
    answers = outcome.json("dev_answers.json")
    assert set(answers) == {f"q{number}" for number in range(96)}
    assert "| where ? | ann lives in bonn . | bonn | " in shown(outcome.folder)["samples"]


def glue_options(folder, task, file, **changes):
    files = {"train_file": folder / file, "dev_file": folder / file}
    return options(folder, task=task, **files, **changes)


@pytest.mark.slow
def test_a_task_of_glue_and_its_submission(folder):
    submission = {"submit_file": folder / "test.tsv"}
    outcome = run("glue", **glue_options(folder, "sst2", "sst2.tsv", **submission))
    assert outcome.metrics["dev_accuracy"] > 0.9
    report = outcome.json("report_dev.json")
    assert report["figures"]["accuracy"] == outcome.metrics["dev_accuracy"]
    lines = (outcome.folder / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 1 + 8
    assert "| ann lives in bonn . | 1 | " in shown(outcome.folder)["samples"]


@pytest.mark.slow
def test_a_regression_task(folder):
    outcome = run("glue", **glue_options(folder, "sick_relatedness", "sick.txt", name="scores"))
    assert outcome.metrics["dev_pearson"] > 0.6
    assert -1 <= outcome.metrics["dev_spearman"] <= 1
    assert outcome.json("report_dev.json")["figures"]["mean_absolute_error"] > 0


@pytest.mark.slow
def test_a_correlation_that_is_never_a_number_has_no_best_epoch(folder, monkeypatch, capsys):
    # As if the model gave all examples the same answer.
    monkeypatch.setitem(glue.METRICS, "pearson", lambda *answers: math.nan)
    nothing = glue_options(folder, "sick_relatedness", "sick.txt", epochs=1, name="nothing")
    with pytest.raises(SystemExit) as stopped:
        run("glue", **nothing)
    assert stopped.value.code == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: val_pearson was NaN in all of 1 epochs")
    assert "the last weights are in" in error


def test_a_missing_package_is_seen_before_the_training(folder, tmp_path, monkeypatch, capsys):
    def without_scipy(name, package=None, find=importlib.util.find_spec):
        return None if name == "scipy" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_scipy)
    changed = glue_options(folder, "sick_relatedness", "sick.txt", runs_dir=tmp_path)
    message = "not installed: scipy. Run: pip install 'keras-transformers[evaluation]'"
    assert message in error_of("glue", capsys, **changed)


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("tagging", {"train_file": "none.txt", "dev_file": "none.txt"}, "none.txt: no such file"),
        ("tagging", {"max_sequence_length": 2}, "--max-sequence-length 2"),
        ("question_answering", {"train_file": "none.json"}, "none.json"),
        ("question_answering", {"max_question_length": 21}, "leaves no room"),
        ("glue", {"task": "sst3", "train_file": "none.tsv"}, "there is no task 'sst3'"),
        ("glue", {"task": "sst2", "train_file": "none.tsv"}, "none.tsv: no such file"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(
    folder, tmp_path, capsys, recipe, changes, message
):
    files = {
        "tagging": {"train_file": folder / "train.conll", "dev_file": folder / "dev.conll"},
        "question_answering": {"train_file": folder / "squad.json"},
    }.get(recipe, {})
    paths = {name: tmp_path / value for name, value in changes.items() if "file" in name}
    changed = files | {"runs_dir": tmp_path / "runs"} | changes | paths
    assert message in error_of(recipe, capsys, **options(folder, **changed))
    assert not (tmp_path / "runs").exists()


def test_a_grid_is_for_fine_tuning(folder, capsys):
    """The grid's learning rates are too low for a new BiLSTM."""
    with pytest.raises(SystemExit) as stopped:
        run("feature_based", "--grid", **tagged(folder))
    assert stopped.value.code == 2
    assert "--grid" in capsys.readouterr().err
