"""The classification recipe, from files to an export, and its errors on wrong input."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from checks import says
from recipe_runs import (
    OPINIONS,
    RECIPES,
    SENTENCE_WORDS,
    error_of,
    run,
    save_encoder,
    save_sentences,
    shown,
)

import keras_transformers as kt
from keras_transformers.layers import TransformerBlock


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Writes an encoder, and sentences whose first word determines the label."""
    folder = tmp_path_factory.mktemp("classification")
    save_encoder(folder, SENTENCE_WORDS)
    save_sentences(folder)
    return folder


def options(folder, **changes):
    return {
        "train_file": folder / "train.tsv",
        "weights": folder / "encoder",
        "epochs": 2,
        "learning_rate": 1e-2,
        "max_sequence_length": 32,
        "runs_dir": folder / "runs",
    } | changes


@pytest.fixture(scope="module")
def outcome(folder):
    """A run on this process's replicas; tests/training/test_distributed.py has two."""
    return run(
        "classification",
        **options(
            folder,
            dev_file=folder / "dev.tsv",
            test_file=folder / "dev.tsv",
            epochs=4,
            batch_size=4,
            accumulate=2,
            strategy="mirrored",
        ),
    )


@pytest.mark.slow
def test_a_run_learns_and_measures_its_best_epoch(outcome):
    metrics = outcome.metrics
    assert metrics["labels"] == ["no", "yes"]
    assert metrics["dev_accuracy"] > 0.9 > metrics["dev_majority"]
    assert metrics["epochs"][-1]["loss"] < 0.8 * metrics["epochs"][0]["loss"]
    # The best epoch's weights are measured.
    assert metrics["test_accuracy"] == pytest.approx(metrics["dev_accuracy"])
    assert metrics["dev_accuracy"] == max(e["val_accuracy"] for e in metrics["epochs"])
    assert [e["epoch"] for e in metrics["epochs"]] == [1, 2, 3, 4]


@pytest.mark.slow
def test_batches_of_all_lengths_share_two_traces(folder, tmp_path, monkeypatch):
    """One for training, one for validation: a trace for each length would take seconds each."""
    call, traced = TransformerBlock.call, []

    @functools.wraps(call)
    def counted(self, inputs, **others):
        if tf.inside_function():
            traced.append((others.get("training"), inputs.shape))
        return call(self, inputs, **others)

    monkeypatch.setattr(TransformerBlock, "call", counted)
    given = options(folder, dev_file=folder / "dev.tsv", batch_size=4, runs_dir=tmp_path)
    run("classification", **given, tensorboard_samples=0)  # the pipeline has its own trace
    assert [training for training, _ in traced] == [True, False]
    assert all(shape[1] is None for _, shape in traced)


@pytest.mark.slow
def test_a_run_leaves_its_files(outcome):
    config = outcome.json("config.json")
    assert (config["epochs"], config["strategy"], config["accumulate"]) == (4, "mirrored", 2)
    assert list((outcome.folder / "tensorboard/train").iterdir())
    assert shown(outcome.folder, step=3)["samples"].startswith("| text | expected | answer: label")
    assert list((outcome.folder / "tensorboard/final").iterdir())
    assert (outcome.folder / "best.weights.h5").is_file()


@pytest.mark.slow
def test_an_export_has_the_scores_of_its_run(folder):
    export = folder / "saved" / "1"
    files = {"dev_file": folder / "dev.tsv", "test_file": folder / "dev.tsv"}
    exported = run("classification", **options(folder, **files, export=export, name="exported"))
    assert f"exported: {export}" in exported.printed
    described = json.loads((export / "assets.extra/keras_transformers.json").read_text())
    measured = ("dev_accuracy", "dev_majority", "test_accuracy", "test_majority")
    assert described["scores"] == {name: exported.metrics[name] for name in measured}


@pytest.mark.slow
def test_one_task_begins_with_what_another_saved(folder, tmp_path, capsys):
    saved, weights = tmp_path / "saved", tmp_path / "weights"
    files = {"dev_file": folder / "dev.tsv", "runs_dir": tmp_path / "runs"}
    first = run("classification", **options(folder, **files, save=saved, name="first"))
    assert f"saved: {saved}" in first.printed
    classify = kt.load(saved)
    assert {answer.label for answer in classify(["good", "bad"])} <= {"yes", "no"}
    kt.save(classify, weights, format="huggingface")
    encoder, _ = kt.convert.load_encoder(weights=weights)
    for layer in encoder.layers:
        for one, other in zip(
            layer.get_weights(), classify.model.get_layer(layer.name).get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    error = error_of("classification", capsys, **options(folder, **files, save=saved, name="third"))
    assert f"--save {saved} exists" in error
    assert not (tmp_path / "runs" / "third").exists()


@pytest.mark.slow
def test_a_run_says_what_it_did(outcome):
    for text in (
        "repeated examples removed",
        "27 of 27 also in training",
        "80 examples",
        "0 inputs trimmed",
    ):
        assert text in outcome.printed


@pytest.mark.slow
def test_a_run_is_never_overwritten(outcome, folder, capsys):
    error = error_of("classification", capsys, **options(folder))
    assert "classification exists: choose another --name" in error


@pytest.mark.slow
def test_pairs_without_a_dev_file(folder):
    rows = [
        json.dumps({"a": f"{one} film", "b": f"{two} plot", "same": (i < 4) == (j < 4)})
        for i, one in enumerate(OPINIONS)
        for j, two in enumerate(OPINIONS)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    files = {"train_file": folder / "pairs.jsonl", "text_column": "a", "text_b_column": "b"}
    new = {"weights": None, "model": "bert_tiny", "vocabulary": folder / "encoder/vocab.txt"}
    pairs = run(
        "classification",
        **options(
            folder,
            **files,
            **new,
            label_column="same",
            dev_fraction=0.25,
            pooling="mean",
            epochs=1,
            name="pairs",
        ),
    )
    assert pairs.metrics["labels"] == ["false", "true"]
    assert pairs.metrics["dev_majority"] == 0.5
    assert pairs.json("config.json")["model"] == "bert_tiny"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(folder):
    figures = []
    for name, seed in (("one", 7), ("again", 7), ("other", 8)):
        epochs = run("classification", **options(folder, name=name, seed=seed)).metrics["epochs"]
        figures.append([epoch | {"tokens_per_second": 0} for epoch in epochs])
    assert figures[0] == figures[1] != figures[2]


NEW = {"weights": None, "model": "bert_tiny", "vocabulary": "vocab.txt"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": "none.tsv"}, "none.tsv: no such file"),
        (NEW | {"vocabulary": None}, "--model NAME and --vocabulary FILE"),
        ({"weights": None}, "either --weights FOLDER"),
        ({"model": "bert_tiny"}, "either --weights FOLDER"),
        ({"weights": "none"}, "none: ... check the path"),
        ({"weights": ""}, "no weights"),
        (NEW | {"model": "bert_tinny"}, "bert_tinny: use one of albert_base"),
        (NEW | {"vocabulary": "none.txt"}, "none.txt"),
        ({"label_smoothing": 1}, "--label-smoothing 1 ... 0 to below 1"),
        ({"label_column": 2}, "train.tsv:1: no column 2 of 0 to 1"),
        ({"label_column": "y"}, "train.tsv:1: 0 columns named 'y'"),
        ({"labels": ("yes",)}, "train.tsv:42: unknown label 'no'"),
        ({"label_column": "sentence", "dev_fraction": 0.001}, "dev split is empty"),
        ({"max_sequence_length": 33}, "--max-sequence-length 33"),
        ({"learning_rate": 0}, "--learning-rate 0 ... above 0"),
        ({"epochs": 0}, "--epochs 0 ... 1 or more"),
        ({"batch_size": 0}, "--batch-size 0 ... 1 or more"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    paths = {
        name: folder / "encoder" / value if value == "vocab.txt" else tmp_path / value
        for name, value in changes.items()
        if name in ("train_file", "weights", "vocabulary") and value is not None
    }
    changed = options(folder, runs_dir=tmp_path / "runs") | changes | paths
    assert says(error_of("classification", capsys, **changed), message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.tsv", "a\tyes\nb\n", "train.tsv:2: 1 columns"),
        ("train.tsv", "a\tyes\nb\tyes\n", "1 different labels"),
        ("train.tsv", "", "no examples"),
        ("dev.tsv", "good film\tmaybe\n", "dev.tsv:1: unknown label 'maybe'"),
        ("dev.tsv", b"good\xff film\tyes\n", "dev.tsv:1: not UTF-8"),
        ("vocab.txt", "[PAD]\n[UNK]\n[SEP]\n[MASK]\ngood\n", "[CLS]"),
    ],
)
def test_malformed_files_are_named(tmp_path, capsys, name, text, message):
    save_sentences(tmp_path)
    (tmp_path / "vocab.txt").touch()
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    new = NEW | {"vocabulary": tmp_path / "vocab.txt", "dev_file": tmp_path / "dev.tsv"}
    assert says(error_of("classification", capsys, **options(tmp_path, **new)), message)


def test_an_export_that_exists_stops_before_training(folder, tmp_path, capsys):
    (tmp_path / "saved" / "1").mkdir(parents=True)
    places = {"runs_dir": tmp_path / "runs", "export": tmp_path / "saved" / "1"}
    assert "saved/1" in error_of("classification", capsys, **options(folder, **places))
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_user_sees_no_traceback():
    recipe = RECIPES / "classification.py"
    process = subprocess.run(
        [sys.executable, str(recipe), "--train-file", "none.tsv"],
        capture_output=True,
        text=True,
        cwd=RECIPES.parent,
        check=False,
    )
    assert process.returncode == 2
    assert "error: --train-file none.tsv: no such file" in process.stderr
    assert "Traceback" not in process.stderr
