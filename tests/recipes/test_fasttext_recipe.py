"""The fastText recipe, from files to an export, and its errors on wrong input."""

import json

import pytest
from checks import says
from recipe_runs import error_of, run, save_sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fasttext")
    save_sentences(folder)
    return folder


def options(folder, **changes):
    return {
        "train_file": folder / "train.tsv",
        "dev_file": folder / "dev.tsv",
        "batch_size": 8,
        "num_buckets": 100,
        "runs_dir": folder / "runs",
    } | changes


def test_the_baseline_learns_and_is_exported(folder):
    changes = {"test_file": folder / "dev.tsv", "export": folder / "saved" / "1"}
    outcome = run("fasttext_classification", **options(folder, learning_rate=4, **changes))
    metrics = outcome.metrics
    assert f"exported: {folder / 'saved' / '1'}" in outcome.printed
    assert metrics["dev_accuracy"] == metrics["test_accuracy"] > 0.9 > metrics["dev_majority"]
    assert metrics["labels"] == ["no", "yes"]
    assert outcome.json("report_dev.json")["figures"]["accuracy"] == metrics["dev_accuracy"]
    described = json.loads((folder / "saved/1/assets.extra/keras_transformers.json").read_text())
    assert described["scores"]["dev_accuracy"] == metrics["dev_accuracy"]


@pytest.mark.slow
def test_characters_a_tree_and_smoothed_labels(folder):
    changes = {"word_ngrams": 1, "min_characters": 2, "max_characters": 3, "label_smoothing": 0.2}
    outcome = run(
        "fasttext_classification",
        "--hierarchical",
        **options(folder, epochs=30, learning_rate=16, name="tree", **changes),
    )
    assert outcome.metrics["dev_accuracy"] > 0.9
    # The least loss with this smoothing: the entropy of (0.9, 0.1).
    assert 0.325 < outcome.metrics["epochs"][-1]["loss"] < 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_buckets": 0}, "--num-buckets 0 ... 1 or more"),
        ({"min_characters": 3}, "--min-characters 3"),
        ({"text_b_column": 0}, "one text"),
        ({"max_sequence_length": 0}, "--max-sequence-length 0 ... 1 or more"),
        ({"learning_rate": 0}, "--learning-rate 0 ... above 0"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    changes = {"runs_dir": tmp_path / "runs"} | changes
    assert says(error_of("fasttext_classification", capsys, **options(folder, **changes)), message)
    assert not (tmp_path / "runs").exists()
