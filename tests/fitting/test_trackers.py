"""What a run tells those who track it, without MLflow: its course, its end, what it ends with."""

import dataclasses
import subprocess
import sys

import keras
import pytest
from test_every_task import LABELS, TEXTS, bag_of_words
from test_monitor import OPTIONS, WRONG

import keras_transformers as kt
from keras_transformers import runs
from keras_transformers.runs.tracking.tracker import Tracker


class Diary(Tracker):
    """Keeps the calls of a run, and the logs of its epochs."""

    def __init__(self):
        super().__init__()
        self.told, self.epochs, self.logs = [], [], []

    def start(self, run):
        self.run = run
        self.told.append("start")
        self.epochs = [logs["epoch"] for logs in run.epochs()]

    def on_epoch_end(self, epoch, logs=None):
        self.told.append(epoch + 1)
        self.logs.append(dict(logs))

    def finish(self, results):
        self.told.append("finish")
        self.results = results

    def close(self, error):
        self.told.append(error)


class Stops(keras.callbacks.Callback):
    """Raises in the third epoch."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise self.error


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A training that a callback stopped, and the one that resumed it: what trackers heard."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = {"validation": (TEXTS, WRONG), "epochs": 3, "monitor": "val_loss", **OPTIONS}
    first, second, heard = Diary(), Diary(), []
    hears = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: heard.append(logs["best_epoch"])
    )
    data, error = (TEXTS, LABELS), RuntimeError("of a callback")
    callbacks = [first, hears, Stops(error)]
    with pytest.raises(RuntimeError, match="of a callback"):
        kt.fit(bag_of_words(), data, folder=folder, callbacks=callbacks, **options)
    pipeline = bag_of_words()
    history = kt.fit(pipeline, data, folder=folder, callbacks=[second, hears], **options).history
    assert first.told == ["start", 1, 2, error]
    return first, second, heard, pipeline, history


def test_a_tracker_hears_options_epochs_and_results(halves):
    first, second, _, pipeline, history = halves
    assert second.told == ["start", 3, "finish", None]
    assert second.run.options == first.run.options
    assert first.run.options["learning_rate"] == 0.05
    assert not {"name", "runs_dir", "quiet"} & set(first.run.options)
    assert first.run.origin["parameters"] == pipeline.model.count_params()
    for name in ("loss", "val_accuracy", "learning_rate", "best_epoch"):
        assert [logs[name] for logs in (*first.logs, *second.logs)] == history[name]
    assert "tokens_per_second" in first.logs[0]
    assert second.results.pipeline is pipeline
    assert second.results.figures == {"best_val_loss": min(history["val_loss"])}
    report = kt.evaluate(pipeline, (TEXTS, WRONG)).report
    assert second.results.reports["validation"].figures == pytest.approx(report.figures)


def test_a_tracker_hears_of_the_epochs_before_a_restart(halves):
    first, second, *_ = halves
    assert (first.epochs, second.epochs) == ([], [1, 2])


def test_the_best_epoch_is_among_the_figures_of_an_epoch(halves):
    """What a user's callback hears, such as that of Weights & Biases, after a restart too."""
    *_, heard, _, history = halves
    losses = history["val_loss"]
    wanted = [1 + losses.index(min(losses[: i + 1])) for i in range(3)]
    assert heard == history["best_epoch"] == wanted


def test_a_recipe_tells_its_trackers_how_it_ended(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(runs.Options):
        """Has all defaults."""

    error = OSError("no space left")

    def main(config, run):
        run.is_prepared, run._trackers = True, [diary]
        raise error

    diary = Diary()
    with pytest.raises(OSError, match="no space left"):
        runs.execute(main, Config(runs_dir=tmp_path))
    assert diary.told == [error]


@pytest.mark.slow
def test_neither_package_is_imported_before_it_is_used():
    code = (
        "import sys, keras_transformers as kt; print(dir(kt.callbacks)); kt.fit; kt.runs.Run; "
        "kt.callbacks.MLflow; assert not {'mlflow', 'wandb'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True).stdout
    assert said == "['MLflow']\n"


def test_the_missing_package_has_its_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError) as error:
        kt.callbacks.MLflow()
    assert "pip install 'keras-transformers[tracking]'" in str(error.value)
    with pytest.raises(SystemExit):
        runs.execute(lambda config, run: {}, runs.Options(runs_dir=tmp_path, mlflow=True))
    assert "pip install 'keras-transformers[tracking]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
