"""A run's folder, and how a user's mistakes end."""

import dataclasses
import json
import math
from pathlib import Path

import keras
import pytest

from keras_transformers.runs import run as runs
from keras_transformers.runs.resume.callback import check_same
from keras_transformers.runs.telemetry import JsonLines, Telemetry


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(runs.Run):
    name: str = "task"
    epochs: int = 3


def test_a_run_begins_once_and_goes_on_alike(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: None)
    config = Task(runs_dir=tmp_path)
    first = dataclasses.replace(config, resume=True)  # a scheduler's command, the first time
    assert first.begin() == tmp_path / "task"
    assert "no run that could go on, so it begins" in capsys.readouterr().out
    assert not (tmp_path / "task").exists()
    runs.start(config.begin(), config)
    with pytest.raises(FileExistsError, match="task exists"):
        config.begin()
    going_on = dataclasses.replace(config, resume=True, quiet=True, checkpoint_every=5)
    assert going_on.begin() == tmp_path / "task"
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match=r"epochs was 3, is 4, seed was 0, is 1; give the same"):
        dataclasses.replace(going_on, epochs=4, seed=1).begin()


def test_only_the_same_configuration_goes_on(tmp_path):
    @dataclasses.dataclass
    class Config:
        data: Path = Path("text")
        sizes: tuple[int, ...] = (1, 2)
        epochs: int = 3
        resume: bool = False

    with pytest.raises(FileNotFoundError, match="no run that could go on; check --name"):
        check_same(tmp_path, Config())
    runs.start(tmp_path, Config())
    assert check_same(tmp_path, Config(resume=True), may_differ=("resume",)) == tmp_path
    with pytest.raises(ValueError, match=r"epochs was 3, is 4, sizes was \[1, 2\], is \[1\]; give"):
        check_same(tmp_path, Config(sizes=(1,), epochs=4))


class Loads:
    """A model that tells which file it was given."""

    def load_weights(self, path):
        self.path = path


def test_the_best_epochs_weights_are_taken(tmp_path):
    model = Loads()
    values = [math.nan, 0.5, 0.75, 0.75]
    epochs = [{"epoch": n, "val_f1": value} for n, value in enumerate(values, start=1)]
    assert runs.load_best(model, tmp_path, epochs, "val_f1") == {"best": 0.75, "best_epoch": 3}
    assert model.path == tmp_path / runs.BEST_WEIGHTS
    model = Loads()
    with pytest.raises(runs.NoBestEpochError, match=r"val_f1 was NaN in all of 1 epochs.*last\.we"):
        runs.load_best(model, tmp_path, epochs[:1], "val_f1")
    assert not hasattr(model, "path")


def test_a_run_without_a_best_epoch_ends_with_one_line(monkeypatch, capsys):
    def main(config):
        raise runs.NoBestEpochError("val_pearson was NaN")

    monkeypatch.setattr(runs.sys, "argv", ["task"])
    with pytest.raises(SystemExit) as stopped:
        runs.command_line(main, Task)
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: val_pearson was NaN\n"


def test_a_program_ends_with_those_of_the_other_workers(monkeypatch):
    """Where the chief fails the others must not have ended well before."""
    called = []
    monkeypatch.setattr(runs.strategies, "leave_together", lambda: called.append("left"))
    monkeypatch.setattr(runs.sys, "argv", ["task"])
    runs.command_line(lambda config: called.append(config.name), Task)
    assert called == ["task", "left"]


def test_what_an_export_tells():
    metrics = {
        "dev_f1": 0.5, "test_f1": math.nan, "best": 0.5, "dev_words": 3, "val BLEU, last, beam": 7.5
    }  # fmt: skip
    assert runs.scores(metrics) == {"dev_f1": 0.5}
    assert runs.scores(metrics, "last, beam") == {"val BLEU, last, beam": 7.5}


def test_the_cost_of_updates_may_change_between_phases(tmp_path):
    log = runs.Logging(log_json=str(tmp_path / "log.jsonl"))
    callbacks = runs.callbacks(tmp_path, monitor="loss", log=log, tokens_per_step=1)
    runs.set_cost(callbacks, tokens_per_step=20.0, flops_per_step=3e9)
    (told,) = (c for c in callbacks if isinstance(c, Telemetry))
    assert (told.tokens_per_step, told.flops_per_step) == (20.0, 3e9)
    (lines,) = (c for c in callbacks if isinstance(c, JsonLines))
    assert (lines.facts["tokens_per_step"], lines.facts["flops_per_step"]) == (20.0, 3e9)


def test_figures_are_printed_and_written(tmp_path, capsys):
    runs.report(tmp_path, {"dev_accuracy": 0.91234, "seconds": 12, "epochs": []})
    printed = capsys.readouterr().out
    assert "dev_accuracy: 0.9123\n" in printed
    assert "seconds: 12\n" in printed
    assert json.loads((tmp_path / "metrics.json").read_text())["dev_accuracy"] == 0.91234
