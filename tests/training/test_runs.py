"""A run's folder, and how a user's mistakes end."""

import dataclasses
import json
from pathlib import Path

import pytest

from keras_transformers.training import runs


def test_user_errors_end_the_program_with_one_line(capsys):
    for error in (ValueError("a.tsv:3: wrong"), FileNotFoundError("a.tsv:3: wrong")):
        with pytest.raises(SystemExit) as stopped, runs.user_errors():
            raise error
        assert stopped.value.code == 2
        assert capsys.readouterr().err == "error: a.tsv:3: wrong\n"
    with pytest.raises(KeyError), runs.user_errors():
        raise KeyError("ours, with its traceback")


def test_a_run_is_never_overwritten(tmp_path):
    @dataclasses.dataclass
    class Config:
        weights: Path
        epochs: int = 3

    folder = runs.check_new(tmp_path / "runs" / "first")
    assert not folder.exists()
    runs.start(folder, Config(Path("minilm")))
    assert json.loads((folder / "config.json").read_text()) == {"weights": "minilm", "epochs": 3}
    with pytest.raises(FileExistsError, match="first exists: give the run another --name"):
        runs.check_new(folder)


def test_json_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    runs.write_json(file, {"a": 1})

    def full(self, target):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        runs.write_json(file, {"a": 2})
    assert json.loads(file.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_epochs_are_rows():
    history = {"loss": [2.0, 1.0], "val_accuracy": [0.5, 0.75]}
    assert runs.epochs(history) == [
        {"epoch": 1, "loss": 2.0, "val_accuracy": 0.5},
        {"epoch": 2, "loss": 1.0, "val_accuracy": 0.75},
    ]


def test_figures_are_printed_and_written(tmp_path, capsys):
    runs.report(tmp_path, {"dev_accuracy": 0.91234, "seconds": 12, "epochs": []})
    printed = capsys.readouterr().out
    assert "dev_accuracy: 0.9123\n" in printed
    assert "seconds: 12\n" in printed
    assert json.loads((tmp_path / "metrics.json").read_text())["dev_accuracy"] == 0.91234
