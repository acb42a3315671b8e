"""Tagging by ELMo's features, from saved weights to a score, and what it says to wrong input."""

import json
import runpy
import sys
from pathlib import Path

import keras
import pytest

import keras_transformers as kt
from keras_transformers.models.elmo import elmo

RECIPE = Path(__file__).parents[2] / "recipes" / "elmo_tagging.py"
TEXT = "Bob B-P\nsaw O\nRome B-L\n\nit O\nrained O\n\nEve B-P\nslept O\nin O\nOslo B-L\n\n"


@pytest.fixture
def folder(tmp_path):
    keras.utils.set_random_seed(0)
    encoder = elmo(
        lstm_dim=8,
        projection_dim=6,
        num_highways=1,
        filters=[(1, 4), (3, 8)],
        character_dim=4,
        max_characters=10,
    )
    (tmp_path / "weights").mkdir()
    kt.convert.save_elmo(encoder, tmp_path / "weights/weights.hdf5")
    kt.convert.save_elmo_options(encoder, tmp_path / "weights/options.json")
    (tmp_path / "train.txt").write_text(TEXT * 8, "utf-8")
    (tmp_path / "dev.txt").write_text(TEXT, "utf-8")
    return tmp_path


def run(monkeypatch, folder, *flags, **changes):
    values = {
        "weights": folder / "weights",
        "train_file": folder / "train.txt",
        "dev_file": folder / "dev.txt",
        "units": 8,
        "dropout": 0,
        "epochs": 25,
        "batch_size": 4,
        "learning_rate": 0.05,
        "runs_dir": folder / "runs",
    } | changes
    words = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *words, *flags])
    runpy.run_path(str(RECIPE), run_name="__main__")
    path = folder / "runs" / changes.get("name", "elmo_tagging") / "metrics.json"
    return json.loads(path.read_text())


def test_saved_weights_to_a_score(folder, monkeypatch):
    metrics = run(monkeypatch, folder, test_file=folder / "dev.txt")
    assert metrics["dev_entity_f1"] == metrics["test_entity_f1"] == metrics["best"] == 1
    assert sum(metrics[f"share_of_layer_{i}"] for i in range(3)) == pytest.approx(1)
    # A mix, a BiLSTM and a head: the encoder is not trained.
    assert metrics["trained_parameters"] == 4 + 2 * (12 + 8 + 1) * 32 + (16 + 1) * 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "none"}, "none/options.json does not exist"),
        ({"dev_file": "none.txt"}, "none.txt: no such file"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, monkeypatch, capsys, changes, message):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, folder, **changes)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_random_weights_are_others(folder, monkeypatch):
    (folder / "weights/weights.hdf5").unlink()
    metrics = run(monkeypatch, folder, "--random-weights", epochs=1)
    assert 0 <= metrics["dev_entity_f1"] <= 1
