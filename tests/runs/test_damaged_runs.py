"""A damaged file of a run ends the program with one line that names it."""

import dataclasses
import json
import shutil
import sys

import h5py
import keras
import numpy as np
import pytest

from keras_transformers import runs
from keras_transformers.data.batching import LengthBatches

DAMAGE = {
    "list": b"[]",
    "number": b"3",
    "cut": b'{"epochs": 3, "na',
    "empty": b"",
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"name": "\xff"}',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(runs.Tuning):
    name: str = "task"
    epochs: int = 2
    quiet: bool = True


class Numbers(LengthBatches):
    """Two batches of one number."""

    def __init__(self):
        super().__init__(np.ones(2, np.int32), batch_size=1, shuffle=False, seed=0)

    def batch(self, indices):
        import tensorflow as tf

        x = tf.cast(indices, tf.float32)[:, None]
        return {"x": x}, {"y": 2 * x}

    def of(self, examples):
        return Numbers()


def main(config, run):
    inputs = keras.Input((1,), name="x")
    model = keras.Model({"x": inputs}, {"y": keras.layers.Dense(1, name="y")(inputs)})
    model.compile("sgd", {"y": "mse"}, jit_compile=False)
    scores = {"score": lambda: {"figure": 0.5}, "monitor": "val_figure"}
    model.fit(**run.prepare(model, Numbers(), **scores))
    return run.finish(None, run.load_best())


def refusal(monkeypatch, capsys, folder, *flags):
    """Returns the line with which the command refuses to go on."""
    words = ["task", "--runs-dir", str(folder), "--resume", *flags]
    monkeypatch.setattr(sys, "argv", words)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        runs.command_line(main, Task)
    said = capsys.readouterr().err
    assert stopped.value.code in (1, 2)
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1, said
    return said


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_configuration_is_named(tmp_path, monkeypatch, capsys, damage):
    runs.Run(Task(runs_dir=tmp_path)).make_folder()
    config = tmp_path / "task" / "config.json"
    config.write_bytes(DAMAGE[damage])
    assert f"{config}: " in refusal(monkeypatch, capsys, tmp_path)
    assert config.read_bytes() == DAMAGE[damage]


def test_lost_weights_of_the_best_epoch_are_named(tmp_path, monkeypatch, capsys):
    config = Task(runs_dir=tmp_path)
    figures = runs.execute(main, config)
    assert figures["best_epoch"] == 1
    best = tmp_path / "task" / "best.weights.h5"
    whole = best.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"no HDF5"):
        best.write_bytes(damage)
        said = refusal(monkeypatch, capsys, tmp_path)
        assert f"{best}: the weights cannot be read (" in said
        assert "put back a copy, or train again with another --name" in said
        assert best.read_bytes() == damage
    best.unlink()
    assert f"{best}: the weights are gone (" in refusal(monkeypatch, capsys, tmp_path)
    best.write_bytes(whole)
    again = runs.execute(main, dataclasses.replace(config, resume=True))
    assert again["best"] == figures["best"]


def test_weights_of_another_model_are_named(tmp_path, monkeypatch, capsys):
    runs.execute(main, Task(runs_dir=tmp_path))
    best = tmp_path / "task" / "best.weights.h5"
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5), keras.layers.Dense(1)])
    other.save_weights(best)
    assert f"{best}: the weights cannot be read (" in refusal(monkeypatch, capsys, tmp_path)


def test_weights_with_nan_are_named(tmp_path, monkeypatch, capsys):
    runs.execute(main, Task(runs_dir=tmp_path))
    best = tmp_path / "task" / "best.weights.h5"
    with h5py.File(best, "r+") as file:
        file["layers/dense/vars/1"][0] = np.nan
    said = refusal(monkeypatch, capsys, tmp_path)
    assert f"{best}: the weights cannot be read (NaN or infinity in y/bias); put back" in said


@pytest.mark.parametrize("content", ["[]", "{}", '{"best": "high"}', '{"best": 0.5'])
def test_damaged_figures_of_a_grid_are_named(tmp_path, monkeypatch, capsys, content):
    config = Task(runs_dir=tmp_path, grid=True)
    metrics = tmp_path / "task" / "learning_rate_5e-05_batch_size_16" / "metrics.json"
    metrics.parent.mkdir(parents=True)
    metrics.write_text(content)
    (tmp_path / "task" / "config.json").write_text(
        json.dumps(dataclasses.asdict(config), default=str)
    )
    assert f"{metrics}: " in refusal(monkeypatch, capsys, tmp_path, "--grid")


@pytest.mark.parametrize("error", ["DataLossError", "InvalidArgumentError"])
def test_damaged_data_are_named(tmp_path, monkeypatch, capsys, error):
    import tensorflow as tf

    def fit(*_, **__):
        raise getattr(tf.errors, error)(None, None, "corrupted record at 1234")

    monkeypatch.setattr(keras.Model, "fit", fit)
    monkeypatch.setattr(Numbers, "damage", lambda self: "a.tfrecord: record 4 is damaged")
    said = refusal(monkeypatch, capsys, tmp_path)
    assert said.startswith("error: a.tfrecord: record 4 is damaged, then run the same command")
    monkeypatch.undo()
    monkeypatch.setattr(keras.Model, "fit", fit)
    with pytest.raises(getattr(tf.errors, error)):  # a mistake of ours keeps its traceback
        runs.execute(main, Task(runs_dir=tmp_path, resume=True))


def test_a_run_whose_checkpoints_are_gone_is_not_begun_anew(tmp_path, monkeypatch, capsys):
    runs.execute(main, Task(runs_dir=tmp_path))
    checkpoints = tmp_path / "task" / "checkpoints"
    for path in checkpoints.glob("step-*"):
        path.unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "task").glob("[!.]*.*")}
    said = refusal(monkeypatch, capsys, tmp_path)
    assert f"{checkpoints}: the checkpoints are gone, and starting again would replace " in said
    assert "metrics.json, best.weights.h5, last.weights.h5: put them back, or choose" in said
    (tmp_path / "task" / "metrics.json").unlink()
    shutil.rmtree(checkpoints)
    assert "best.weights.h5, last.weights.h5: put" in refusal(monkeypatch, capsys, tmp_path)
    del before[tmp_path / "task" / "metrics.json"]
    assert before == {path: path.read_bytes() for path in (tmp_path / "task").glob("[!.]*.*")}


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_anew(tmp_path):
    runs.execute(main, Task(runs_dir=tmp_path))
    (tmp_path / "task" / "metrics.json").unlink()  # as after a kill while the checkpoint is written
    for path in (tmp_path / "task" / "checkpoints").glob("step-*"):
        path.unlink()
    assert len(runs.execute(main, Task(runs_dir=tmp_path, resume=True))["epochs"]) == 2
