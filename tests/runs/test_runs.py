"""A run's folder, its best epoch, its files, and how a user's mistakes end."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from checks import says

from keras_transformers import runs
from keras_transformers.data.batching import LengthBatches
from keras_transformers.runs import launching, run
from keras_transformers.runs.callbacks import standard_callbacks, update_costs
from keras_transformers.runs.options import MAY_DIFFER, Logging
from keras_transformers.runs.resume import run_folder
from keras_transformers.runs.telemetry import JsonLines, Telemetry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(runs.Options):
    name: str = "task"
    epochs: int = 3
    batch_size: int = 2


@pytest.fixture(autouse=True)
def seeds(monkeypatch):
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: None)


@pytest.mark.parametrize("error", [ValueError("a.tsv:3: wrong"), FileNotFoundError("a.tsv: none")])
def test_a_users_error_ends_the_program_with_one_line(error, tmp_path, capsys):
    def main(config, run):
        raise error

    with pytest.raises(SystemExit) as stopped:
        runs.execute(main, Task(runs_dir=tmp_path))
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"error: {error}\n"
    assert not list(tmp_path.iterdir())


def test_a_refused_run_leaves_its_name_free(tmp_path, capsys):
    def main(config, run):
        run.make_folder()
        raise ValueError("no text")

    def later(config, run):
        (run.make_folder() / "records").mkdir()
        raise ValueError("no text")

    for function, left in ((main, []), (main, []), (later, ["task"])):
        with pytest.raises(SystemExit):
            runs.execute(function, Task(runs_dir=tmp_path))
        assert capsys.readouterr().err == "error: no text\n"
        assert [path.name for path in tmp_path.iterdir()] == left


def test_ctrl_c_ends_a_run_in_one_line(tmp_path, capsys, monkeypatch):
    def main(config, run):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["task", "--runs-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        runs.command_line(main, Task)
    assert stopped.value.code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert says(line, "error: interrupted ... --resume")


def test_an_error_after_training_began_is_ours(tmp_path):
    def main(config, run):
        run.is_prepared = True
        raise ValueError("ours, with its traceback")

    with pytest.raises(ValueError, match="ours"):
        runs.execute(main, Task(runs_dir=tmp_path))


def test_a_run_is_never_overwritten(tmp_path):
    first = runs.Run(Task(runs_dir=tmp_path))
    assert not first.folder.exists()
    assert first.make_folder() == tmp_path / "task"
    assert json.loads((first.folder / "config.json").read_text())["epochs"] == 3
    with pytest.raises(FileExistsError, match="task exists: choose another --name"):
        runs.Run(Task(runs_dir=tmp_path))


def test_an_export_is_never_overwritten(tmp_path):
    (tmp_path / "base" / "1").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="a version is never overwritten"):
        runs.Run(Task(runs_dir=tmp_path, export=tmp_path / "base" / "1"))


def test_a_run_begins_once_and_resumes_alike(tmp_path, capsys):
    config = Task(runs_dir=tmp_path)
    first = dataclasses.replace(config, resume=True)  # a scheduler's first command
    runs.Run(first)
    assert says(capsys.readouterr().out, "nothing to resume")
    assert not (tmp_path / "task").exists()
    runs.Run(config).make_folder()
    resumed = dataclasses.replace(config, resume=True, quiet=True, checkpoint_every=5)
    assert runs.Run(resumed).folder == tmp_path / "task"
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match=r"3,.*2, seed.*0,.*1; pass"):
        runs.Run(dataclasses.replace(resumed, epochs=2, seed=1))


def test_only_the_same_configuration_resumes(tmp_path):
    @dataclasses.dataclass
    class Config:
        data: Path = Path("text")
        sizes: tuple[int, ...] = (1, 2)
        epochs: int = 3
        resume: bool = False

    with pytest.raises(FileNotFoundError, match="no run .*--name"):
        run_folder.check_same(tmp_path, Config())
    text = json.dumps(dataclasses.asdict(Config()), default=str)
    (tmp_path / "config.json").write_text(text)
    assert run_folder.check_same(tmp_path, Config(resume=True), may_differ=MAY_DIFFER) == tmp_path
    with pytest.raises(ValueError, match=r"3,.*4, sizes.*\[1, 2\],.*\[1\]; pass"):
        run_folder.check_same(tmp_path, Config(sizes=(1,), epochs=4))
    # A run of an older version, which had fewer options.
    (tmp_path / "config.json").write_text('{"data": "text", "resume": false}')
    assert run_folder.check_same(tmp_path, Config()) == tmp_path
    with pytest.raises(ValueError, match="epochs was 3, is 4; pass"):
        run_folder.check_same(tmp_path, Config(epochs=4))


class Numbers(LengthBatches):
    """Three examples: a batch of two and a batch of one."""

    def __init__(self, shuffle=True):
        super().__init__(np.ones(3, np.int32), batch_size=2, shuffle=shuffle, seed=0)

    def batch(self, indices):
        import tensorflow as tf

        x = tf.cast(indices, tf.float32)[:, None]
        return {"x": x}, {"y": 2 * x}

    def of(self, examples):
        return Numbers(shuffle=False)


def model_of_a_line():
    inputs = keras.Input((1,), name="x")
    outputs = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="y")(inputs)
    model = keras.Model({"x": inputs}, {"y": outputs})
    model.compile("sgd", {"y": "mse"}, jit_compile=False)
    return model


def test_a_run_trains_scores_and_keeps_the_best_epoch(tmp_path):
    config = Task(runs_dir=tmp_path, quiet=True)
    one, model, batches = runs.Run(config), model_of_a_line(), Numbers()
    scores = iter([{"figure": 0.5}, {"figure": math.nan}, {"figure": 0.25}])
    kernels = []

    def score():
        kernels.append(float(model.get_weights()[0][0, 0]))
        return next(scores)

    arguments = one.prepare(
        model, batches, validation=batches.of(None), score=score, monitor="val_figure"
    )
    assert (arguments["steps_per_epoch"], arguments["epochs"]) == (2, 3)
    model.fit(**arguments)
    assert [epoch["epoch"] for epoch in one.epochs] == [1, 2, 3]
    assert one.epochs[0]["val_figure"] == 0.5
    assert "val_loss" in one.epochs[0]
    assert one.load_best() == {"best": 0.5, "best_epoch": 1}
    assert float(model.get_weights()[0][0, 0]) == kernels[0]
    one.load_last()
    assert float(model.get_weights()[0][0, 0]) == kernels[2]

    metrics = one.finish(None, {"dev_figure": 0.5})
    assert metrics.keys() == {"dev_figure", "epochs", "seconds", "origin"}
    written = json.loads((one.folder / "metrics.json").read_text())
    assert written["epochs"][0] == metrics["epochs"][0]
    assert written["origin"] == metrics["origin"]
    assert written["origin"]["parameters"] == model.count_params()


def test_a_runs_seconds_count_what_it_took_before_it_was_resumed(tmp_path):
    config = Task(runs_dir=tmp_path, epochs=1, quiet=True)

    def train(config, *, shift=0.0):
        one, model = runs.Run(config), model_of_a_line()
        one._started -= shift  # reading the data, say
        model.fit(**one.prepare(model, Numbers()))
        return one

    train(config, shift=1_000.0)
    resumed = train(dataclasses.replace(config, resume=True))
    assert 1_000 < resumed.seconds < 1_500


def test_a_finished_run_goes_on_for_more_epochs(tmp_path, capsys):
    config = Task(runs_dir=tmp_path, epochs=2, quiet=True)

    def train(config):
        one, model = runs.Run(config), model_of_a_line()
        model.fit(**one.prepare(model, Numbers()))
        one.finish(None, {})
        return model.get_weights()[0].tobytes()

    train(config)
    assert "schedule" not in capsys.readouterr().out
    longer = train(dataclasses.replace(config, epochs=4, resume=True))
    assert "task: 4 epochs instead of 2, so the schedule changes\n" in capsys.readouterr().out
    assert longer == train(dataclasses.replace(config, epochs=4, name="at_once"))
    kept = {path.name: json.loads(path.read_text()) for path in (tmp_path / "task").glob("*.json")}
    assert (kept["config_2_epochs.json"]["epochs"], kept["config.json"]["epochs"]) == (2, 4)
    assert [epoch["epoch"] for epoch in kept["metrics.json"]["epochs"]] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="epochs was 4, is 2; pass the same"):
        runs.Run(dataclasses.replace(config, resume=True))


def test_a_run_without_a_best_epoch_says_so(tmp_path):
    one, model = runs.Run(Task(runs_dir=tmp_path, epochs=1, quiet=True)), model_of_a_line()
    score = {"score": lambda: {"figure": math.nan}, "monitor": "val_figure"}
    model.fit(**one.prepare(model, Numbers(), **score))
    with pytest.raises(run.NoBestEpochError, match="val_figure .*NaN .*1 epochs.*last"):
        one.load_best()


def test_validation_repeats_its_last_figures_between_epochs():
    validation = runs.Validation(lambda: {"bleu": 30.5, "chars": 2}, every=2)
    logs = [{}, {}, {}]
    for epoch, found in enumerate(logs):
        validation.on_epoch_end(epoch, found)
    assert logs == [{}, {"val_bleu": 30.5, "val_chars": 2.0}, {"val_bleu": 30.5, "val_chars": 2.0}]
    resumed = runs.Validation(dict, every=2)
    resumed.load_state(validation.state())
    found = {}
    resumed.on_epoch_end(2, found)
    assert found == logs[1]
    with pytest.raises(ValueError, match="every=0"):
        runs.Validation(dict, every=0)


def test_a_program_without_a_best_epoch_ends_with_one_line(monkeypatch, capsys, tmp_path):
    def main(config, run_):
        raise run.NoBestEpochError("val_pearson was NaN")

    monkeypatch.setattr(sys, "argv", ["task", "--runs-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        runs.command_line(main, Task)
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: val_pearson was NaN\n"


def test_a_program_ends_with_those_of_the_other_workers(monkeypatch, tmp_path):
    """If the chief fails, the others must not have exited with success before."""
    called = []
    monkeypatch.setattr(launching, "leave_together", lambda: called.append("left"))
    monkeypatch.setattr(sys, "argv", ["task", "--runs-dir", str(tmp_path)])
    runs.command_line(lambda config, run: called.append(config.name), Task)
    assert called == ["task", "left"]


def test_a_missing_package_is_reported_at_the_start():
    runs.check_installed("keras", extra="images")
    with pytest.raises(ImportError, match=r"not installed: no_such. Run: pip install .*\[x\]"):
        runs.check_installed("keras", "no_such", extra="x")


def test_what_an_export_tells():
    metrics = {
        "dev_f1": 0.5, "test_f1": math.nan, "best": 0.5, "dev_words": 3, "val BLEU, last, beam": 7.5
    }  # fmt: skip
    assert run._figures_of(metrics, ("dev_", "test_")) == {"dev_f1": 0.5}
    assert run._figures_of(metrics, ("last, beam",)) == {"val BLEU, last, beam": 7.5}


def test_the_cost_of_updates_may_change_between_phases(tmp_path):
    log = Logging(log_json=str(tmp_path / "log.jsonl"))
    files = {"last": "last.weights.h5", "best": "best.weights.h5"}
    callbacks = standard_callbacks(tmp_path, log, **files, monitor="loss")
    update_costs(callbacks, tokens_per_step=1.0, flops_per_step=1.0)
    update_costs(callbacks, tokens_per_step=20.0, flops_per_step=3e9)
    (told,) = (c for c in callbacks if isinstance(c, Telemetry))
    assert (told.tokens_per_step, told.flops_per_step) == (20.0, 3e9)
    (lines,) = (c for c in callbacks if isinstance(c, JsonLines))
    assert (lines.facts["tokens_per_step"], lines.facts["flops_per_step"]) == (20.0, 3e9)


def test_figures_are_printed_and_written(tmp_path, capsys):
    one = runs.Run(Task(runs_dir=tmp_path))
    one.make_folder()
    one.finish(None, {"dev_accuracy": 0.91234, "steps": 12, "labels": ["a"]})
    printed = capsys.readouterr().out
    assert "dev_accuracy: 0.9123\n" in printed
    assert "steps: 12\n" in printed
    assert json.loads((one.folder / "metrics.json").read_text())["dev_accuracy"] == 0.91234
