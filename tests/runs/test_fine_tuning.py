"""The options for fine-tuning, and the grid over two of them."""

import dataclasses
import json

import keras
import pytest

from keras_transformers.runs import EncoderTuning, Tuning, execute, grid, guardrails


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Tuning):
    name: str = "task"


@pytest.fixture(autouse=True)
def small_grid(monkeypatch):
    monkeypatch.setattr(grid, "LEARNING_RATES", (5e-5, 2e-5))
    # No models are built here, and to collect the garbage of all tests takes a second.
    monkeypatch.setattr(keras.utils, "clear_session", lambda: None)


def recipe(calls, *, fails=()):
    """Returns a `main` that scores 1 / learning rate, and writes files as recipes do."""

    def main(config, run):
        calls.append((config.learning_rate, config.batch_size))
        run.make_folder()
        if calls[-1] in fails:
            raise guardrails.NonFiniteLossError("loss is nan")
        return run.finish(None, {"best": 1e-5 / config.learning_rate + config.batch_size / 1000})

    return main


def test_a_run_for_each_point(tmp_path, capsys):
    calls = []
    found = execute(recipe(calls), Config(grid=True, runs_dir=tmp_path))
    assert calls == [(5e-5, 16), (5e-5, 32), (2e-5, 16), (2e-5, 32)]
    assert found["learning_rate_2e-05_batch_size_32"]["best"] == pytest.approx(0.532)
    assert json.loads((tmp_path / "task" / "grid.json").read_text()) == found
    assert "best: learning_rate_2e-05_batch_size_32" in capsys.readouterr().out
    execute(recipe(calls), Config(runs_dir=tmp_path, name="one", learning_rate=1e-4))
    assert calls[4:] == [(1e-4, 32)], "without --grid it is one run, with the options as given"


def test_a_stopped_grid_continues(tmp_path):
    """Finished runs are not repeated; a run that was stopped midway is continued."""
    calls = []
    config = Config(grid=True, runs_dir=tmp_path)
    main = recipe(calls)

    def stop(config, run):
        metrics = main(config, run)
        if len(calls) == 2:
            (run.folder / "metrics.json").unlink()
            raise KeyboardInterrupt
        return metrics

    with pytest.raises(KeyboardInterrupt):
        execute(stop, config)
    assert len(execute(main, config)) == 4
    assert calls == [(5e-5, 16), (5e-5, 32), (5e-5, 32), (2e-5, 16), (2e-5, 32)]
    with pytest.raises(SystemExit):
        execute(main, dataclasses.replace(config, seed=1))


def test_a_loss_that_is_nan_ends_its_run_only(tmp_path, capsys):
    found = execute(recipe([], fails={(5e-5, 32)}), Config(grid=True, runs_dir=tmp_path))
    assert len(found) == 3
    assert "learning_rate_5e-05_batch_size_32: loss is nan" in capsys.readouterr().out


def test_a_grid_that_found_no_input_keeps_its_name_free(tmp_path):
    def refuse(config, run):
        raise FileNotFoundError("none.tsv: no such file")

    with pytest.raises(SystemExit):
        execute(refuse, Config(grid=True, runs_dir=tmp_path, epochs=1))
    calls = []
    assert len(execute(recipe(calls), Config(grid=True, runs_dir=tmp_path, epochs=2))) == 4


@pytest.mark.parametrize("name", ["export", "save"])
def test_an_export_of_a_grid_is_refused(tmp_path, capsys, name):
    config = Config(grid=True, runs_dir=tmp_path, **{name: tmp_path / "saved" / "1"})
    with pytest.raises(SystemExit):
        execute(recipe([]), config)
    assert f"{name} the one you choose" in capsys.readouterr().err
    assert not (tmp_path / "task").exists()


def test_the_optimizer_decays_to_nothing():
    optimizer = Config(epochs=2, learning_rate=1e-3).optimizer(keras.Sequential(), 10)
    # The argument is the number of updates done: the second of 20 has the peak.
    rates = [float(optimizer._learning_rate(step)) for step in (0, 1, 20)]
    assert rates[1] == pytest.approx(1e-3)
    assert rates[0] < 1e-3
    assert rates[2] == pytest.approx(0.0)
    assert isinstance(optimizer, keras.optimizers.AdamW)


def test_the_arguments_that_options_make():
    config = EncoderTuning(batch_size=4, accumulate=2, seed=7, model="bert_tiny", dropout=0.2)
    assert config.batching() == {
        "batch_size": 4,
        "accumulate": 2,
        "seed": 7,
        "static_shapes": None,
    }
    assert config.encoder_source() == {
        "weights": None,
        "model": "bert_tiny",
        "vocabulary": None,
        "lowercase": None,
        "dropout": 0.2,
    }
