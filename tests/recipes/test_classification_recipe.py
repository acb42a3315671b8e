"""The classification recipe, from files to an export, and what it says to wrong input."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "recipes" / "classification.py"
WORDS = ["good", "great", "fine", "warm", "bad", "dull", "poor", "cold"]


@pytest.fixture
def folder(tmp_path):
    """A vocabulary, and sentences whose first word tells the label."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text(
        "\n".join([*special, *WORDS, "a", "film", "the", "plot"]) + "\n"
    )
    rows = [
        f"{word} {' '.join(['a film', 'the plot'][i % 2 :])} {'a ' * i}\t{'yes' if w < 4 else 'no'}"
        for w, word in enumerate(WORDS)
        for i in range(10)
    ]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows[::3]]) + "\n")
    return tmp_path


def options(folder, **changes):
    """The command's words, with `changes` made to them; None takes an option away."""
    values = {
        "train_file": folder / "train.tsv",
        "model": "bert_tiny",
        "vocabulary": folder / "vocab.txt",
        "epochs": 2,
        "learning_rate": 1e-3,
        "max_sequence_length": 32,
        "runs_dir": folder / "runs",
    } | changes
    chosen = {name: value for name, value in values.items() if value is not None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]


def run(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *arguments])
    runpy.run_path(str(RECIPE), run_name="__main__")


@pytest.mark.slow
def test_the_baseline_learns_and_is_served(folder, monkeypatch):
    arguments = options(
        folder,
        model="fasttext_base",
        vocabulary=None,
        dev_file=folder / "dev.tsv",
        epochs=20,
        batch_size=8,
        learning_rate=4.0,
        num_buckets=100,
        export=folder / "saved" / "1",
    )
    run(monkeypatch, arguments)
    metrics = json.loads((folder / "runs/classification/metrics.json").read_text())
    assert metrics["dev_accuracy"] > 0.9
    assert (folder / "saved/1/saved_model.pb").is_file()


def test_the_baseline_with_characters_a_tree_and_smoothed_labels(folder, monkeypatch):
    arguments = options(
        folder,
        model="fasttext_base",
        vocabulary=None,
        dev_file=folder / "dev.tsv",
        epochs=30,
        batch_size=8,
        learning_rate=16.0,
        word_ngrams=1,
        min_characters=2,
        max_characters=3,
        num_buckets=100,
        label_smoothing=0.2,
        max_sequence_length=200,
    )
    run(monkeypatch, [*arguments, "--hierarchical"])
    metrics = json.loads((folder / "runs/classification/metrics.json").read_text())
    assert metrics["dev_accuracy"] > 0.9
    # What a loss with this smoothing cannot go below: the entropy of (0.9, 0.1).
    assert 0.325 < metrics["epochs"][-1]["loss"] < 0.5


def test_on_several_replicas(folder, monkeypatch):
    """As many as this process has devices; tests/training/test_distributed.py has two."""
    arguments = options(
        folder,
        dev_file=folder / "dev.tsv",
        test_file=folder / "dev.tsv",
        epochs=8,
        batch_size=8,
        strategy="mirrored",
        accumulate=2,
    )
    run(monkeypatch, arguments)
    metrics = json.loads((folder / "runs/classification/metrics.json").read_text())
    assert metrics["epochs"][-1]["loss"] < 0.8 * metrics["epochs"][0]["loss"]
    assert metrics["test_accuracy"] == pytest.approx(metrics["dev_accuracy"])
    config = json.loads((folder / "runs/classification/config.json").read_text())
    assert (config["strategy"], config["accumulate"]) == ("mirrored", 2)


def test_files_to_export(folder, monkeypatch, capsys):
    arguments = options(
        folder,
        dev_file=folder / "dev.tsv",
        test_file=folder / "dev.tsv",
        epochs=4,
        batch_size=8,
        export=folder / "saved" / "1",
    )
    run(monkeypatch, arguments)
    metrics = json.loads((folder / "runs/classification/metrics.json").read_text())
    assert metrics["labels"] == ["no", "yes"]
    assert metrics["dev_accuracy"] > 0.9 > metrics["dev_majority"]
    # The best epoch's weights are the ones that are measured.
    assert metrics["test_accuracy"] == pytest.approx(metrics["dev_accuracy"])
    assert metrics["dev_accuracy"] == max(e["val_accuracy"] for e in metrics["epochs"])
    assert [e["epoch"] for e in metrics["epochs"]] == [1, 2, 3, 4]
    config = json.loads((folder / "runs/classification/config.json").read_text())
    assert (config["model"], config["epochs"]) == ("bert_tiny", 4)
    assert list((folder / "runs/classification/tensorboard/train").iterdir())
    assert (folder / "runs/classification/best.weights.h5").is_file()
    described = json.loads((folder / "saved/1/assets.extra/keras_transformers.json").read_text())
    measured = ("dev_accuracy", "dev_majority", "test_accuracy", "test_majority")
    assert described["scores"] == {name: metrics[name] for name in measured}
    printed = capsys.readouterr().out
    assert "repeated examples removed" in printed
    assert "27 of 27 also in training" in printed
    assert "80 examples" in printed
    assert "0 inputs trimmed" in printed
    assert f"exported: {folder / 'saved' / '1'}" in printed

    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, arguments)
    assert stopped.value.code == 2
    assert "classification exists: give the run another --name" in capsys.readouterr().err


def test_pairs_without_a_dev_file(folder, monkeypatch):
    rows = [
        json.dumps({"a": f"{one} film", "b": f"{two} plot", "same": (i < 4) == (j < 4)})
        for i, one in enumerate(WORDS)
        for j, two in enumerate(WORDS)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    arguments = options(
        folder,
        train_file=folder / "pairs.jsonl",
        text_column="a",
        text_b_column="b",
        label_column="same",
        dev_fraction=0.25,
        pooling="mean",
        epochs=1,
    )
    run(monkeypatch, arguments)
    metrics = json.loads((folder / "runs/classification/metrics.json").read_text())
    assert metrics["labels"] == ["false", "true"]
    assert metrics["dev_majority"] == 0.5


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(folder, monkeypatch):
    figures = []
    for name, seed in (("one", 7), ("again", 7), ("other", 8)):
        run(monkeypatch, options(folder, name=name, seed=seed))
        epochs = json.loads((folder / f"runs/{name}/metrics.json").read_text())["epochs"]
        figures.append([epoch | {"tokens_per_second": 0} for epoch in epochs])
    assert figures[0] == figures[1] != figures[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": "none.tsv"}, "none.tsv: no such file"),
        ({"vocabulary": None}, "--model NAME and --vocabulary FILE"),
        ({"model": None}, "either --weights FOLDER"),
        ({"weights": "."}, "either --weights FOLDER"),
        ({"model": None, "vocabulary": None, "weights": "none"}, "config.json"),
        ({"model": "bert_tinny"}, "did you mean bert_tiny"),
        ({"vocabulary": "none.txt"}, "none.txt"),
        ({"model": "fasttext_base"}, "leave --weights, --vocabulary and --grid out"),
        ({"model": "fasttext_base", "vocabulary": None, "num_buckets": 0}, "num_buckets"),
        ({"model": "fasttext_base", "vocabulary": None, "min_characters": 3}, "min_characters=3"),
        ({"hierarchical": True}, "--hierarchical is of --model fasttext_base"),
        ({"label_smoothing": 1}, "label_smoothing is 1.0, must be from 0 to below 1"),
        ({"label_column": 2}, "train.tsv:1: no column 2, the file has 2"),
        ({"label_column": "y"}, "train.tsv:1: no column 'y'"),
        ({"labels": "yes"}, "train.tsv:42: unknown label 'no'"),
        ({"label_column": 0, "header": "present", "dev_fraction": 0.001}, "dev split is empty"),
        ({"max_sequence_length": 513}, "max_sequence_length=513"),
        ({"learning_rate": 0}, "peak_learning_rate is 0.0"),
        ({"epochs": 0}, "total_steps is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, monkeypatch, capsys, changes, message):
    arguments = options(folder, **changes)
    arguments = [word.replace("hierarchical=True", "hierarchical") for word in arguments]
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not (folder / "runs").exists()


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
def test_malformed_files_are_named(folder, monkeypatch, capsys, name, text, message):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, options(folder, dev_file=folder / "dev.tsv"))
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_export_that_exists_stops_before_training(folder, monkeypatch, capsys):
    (folder / "saved" / "1").mkdir(parents=True)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, options(folder, export=folder / "saved" / "1"))
    assert stopped.value.code == 2
    assert "saved/1" in capsys.readouterr().err
    assert not (folder / "runs").exists()


def test_a_user_sees_no_traceback(folder):
    process = subprocess.run(
        [sys.executable, str(RECIPE), *options(folder, train_file="none.tsv")],
        capture_output=True,
        text=True,
        cwd=RECIPE.parents[1],
    )
    assert process.returncode == 2
    assert "error: none.tsv: no such file" in process.stderr
    assert "Traceback" not in process.stderr
