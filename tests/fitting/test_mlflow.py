"""Trainings in MLflow's own database: figures, reports, models, and what fails."""

import contextlib
import json
import os
import signal

import keras
import logged
import pytest
from test_every_task import LABELS, TEXTS, fresh
from test_monitor import OPTIONS, WRONG

import keras_transformers as kt

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: make test-tracking")
pandas = pytest.importorskip("pandas")

DATA = (TEXTS, LABELS)
FIT = {**OPTIONS, "epochs": 3, "validation": (TEXTS, WRONG)}
OFF = {"log_model": False}


@pytest.fixture(scope="module", autouse=True)
def database(tmp_path_factory):
    """An empty database, whose tables take MLflow seconds to make."""
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("artifacts", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("artifacts")
    with contextlib.chdir(folder):  # where the artifacts of other experiments go
        yield folder
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def trained():
    """A tracked training: its callback, its pipeline and its history."""
    callback = kt.callbacks.MLflow(run_name="mine", registered_model_name="films", tags={"a": "b"})
    pipeline = fresh("classification")
    history = kt.fit(pipeline, DATA, callbacks=callback, **FIT)
    return callback, pipeline, history.history


def figures(run_id):
    """Name -> (epoch, value) of each point."""
    client = mlflow.MlflowClient()
    names = client.get_run(run_id).data.metrics
    return {
        name: [(point.step, point.value) for point in client.get_metric_history(run_id, name)]
        for name in names
    }


def status(run_id):
    return mlflow.get_run(run_id).info.status


def test_the_run_has_the_options_and_the_figures_of_each_epoch(trained):
    callback, pipeline, history = trained
    run = mlflow.get_run(callback.run_id)
    assert (run.info.status, run.info.run_name, run.data.tags["a"]) == ("FINISHED", "mine", "b")
    assert run.data.params["learning_rate"] == "0.05"
    assert run.data.params["parameters"] == str(pipeline.model.count_params())
    points = figures(callback.run_id)
    for name in ("loss", "val_accuracy", "learning_rate", "best_epoch"):
        assert points[name] == list(enumerate(history[name], 1))
    assert points["best_val_accuracy"] == [(3, max(history["val_accuracy"]))]
    assert mlflow.active_run() is None


def test_the_report_is_figures_and_files(trained, tmp_path):
    callback, pipeline, _ = trained
    report = kt.evaluate(pipeline, FIT["validation"]).report
    points = figures(callback.run_id)
    for name, value in report.figures.items():
        assert points[f"validation/{name}"] == [(3, pytest.approx(value))]
    mlflow.artifacts.download_artifacts(
        run_id=callback.run_id, artifact_path="reports/validation", dst_path=str(tmp_path)
    )
    (folder,) = tmp_path.rglob("validation")
    written = json.loads((folder / "report.json").read_text())
    assert written["tables"].keys() == report.tables.keys()
    for name, table in report.tables.items():
        frame = pandas.read_csv(folder / f"{name}.csv")
        assert (tuple(frame), len(frame)) == (table.columns, len(table.rows))
    for name in report.pictures:
        assert "<svg" in (folder / f"report_{name}.svg").read_text()


def test_the_model_answers_a_frame_as_the_pipeline_does(trained):
    _, pipeline, _ = trained
    model = mlflow.pyfunc.load_model("models:/films/1")
    frame = pandas.DataFrame({"text": TEXTS[:2]}, index=["a", "b"])
    answers = model.predict(frame)
    assert list(answers.index) == ["a", "b"]
    for answer, wanted in zip(answers.to_dict("records"), pipeline.rows(frame), strict=True):
        assert answer.pop("probabilities") == pytest.approx(wanted.pop("probabilities"), rel=1e-4)
        assert answer == wanted
    signature = model.metadata.signature
    assert signature.inputs.to_dict() == [{"name": "text", "type": "string", "required": True}]
    assert signature.outputs.input_names() == ["label", "label_index", "probabilities"]
    with pytest.raises(mlflow.MlflowException, match="text"):
        model.predict(pandas.DataFrame({"review": ["x"]}))
    requirements = mlflow.pyfunc.get_model_dependencies("models:/films/1")
    with open(requirements) as file:
        lines = file.read().splitlines()
    assert f"keras-transformers=={kt.__version__}" in lines
    assert all("==" in line for line in lines)


class Terminates(keras.callbacks.Callback):
    """Gets SIGTERM in an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.epoch == 1 and batch == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch


def test_a_training_that_is_resumed_goes_on_in_its_run(tmp_path):
    whole = kt.callbacks.MLflow(**OFF)
    wanted = kt.fit(fresh("classification"), DATA, callbacks=whole, **FIT).history
    first, second = kt.callbacks.MLflow(**OFF), kt.callbacks.MLflow(**OFF)
    with pytest.raises(SystemExit):
        kt.fit(
            fresh("classification"),
            DATA,
            folder=tmp_path / "run",
            callbacks=[first, Terminates(0)],
            **FIT,
        )
    assert status(first.run_id) == "KILLED"
    kt.fit(fresh("classification"), DATA, folder=tmp_path / "run", callbacks=second, **FIT)
    assert second.run_id == first.run_id != whole.run_id
    assert status(first.run_id) == "FINISHED"
    points = figures(first.run_id)
    assert points["val_loss"] == list(enumerate(wanted["val_loss"], 1))
    # More epochs continue it too, although a parameter has another value.
    third = kt.callbacks.MLflow(**OFF)
    longer = FIT | {"epochs": 4}
    kt.fit(fresh("classification"), DATA, folder=tmp_path / "run", callbacks=third, **longer)
    assert third.run_id == first.run_id
    assert [step for step, _ in figures(first.run_id)["loss"]] == [1, 2, 3, 4]
    data = mlflow.get_run(first.run_id).data
    assert (data.params["epochs"], data.tags["changed epochs"]) == ("3", "4")


def test_a_run_of_the_user_is_used_and_stays_active():
    callback = kt.callbacks.MLflow(**OFF)
    with mlflow.start_run() as mine:
        kt.fit(fresh("classification"), DATA, callbacks=callback, **FIT)
        assert mlflow.active_run().info.run_id == mine.info.run_id == callback.run_id
        assert status(callback.run_id) == "RUNNING"
    assert status(callback.run_id) == "FINISHED"


def test_a_training_that_fails_says_so():
    def fail(epoch, logs):
        raise RuntimeError("of a callback")

    callback = kt.callbacks.MLflow(**OFF)
    fails = keras.callbacks.LambdaCallback(on_epoch_end=fail)
    with pytest.raises(RuntimeError, match="of a callback"):
        kt.fit(fresh("classification"), DATA, callbacks=[callback, fails], **FIT)
    assert status(callback.run_id) == "FAILED"
    assert mlflow.get_run(callback.run_id).data.tags["error"] == "RuntimeError: of a callback"
    assert mlflow.active_run() is None


def test_a_server_that_does_not_answer_loses_no_training(tmp_path, caplog, monkeypatch):
    """What it missed is logged by the same call, once it answers."""
    folder, again = tmp_path / "run", tmp_path / "again"
    uri = mlflow.get_tracking_uri()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    wanted = kt.fit(fresh("classification"), DATA, folder=again, **FIT).history
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    try:
        callback = kt.callbacks.MLflow(**OFF)
        found = kt.fit(
            fresh("classification"), DATA, folder=folder, callbacks=callback, **FIT
        ).history
    finally:
        mlflow.set_tracking_uri(uri)
    assert callback.run_id is None
    assert found["loss"] == wanted["loss"]
    (warning,) = logged.warnings_in(caplog)
    assert all(part in warning for part in ("127.0.0.1", "MLFLOW_TRACKING_URI", "same folder"))
    kt.fit(fresh("classification"), DATA, folder=folder, callbacks=callback, **FIT)
    points = figures(callback.run_id)
    assert points["loss"] == list(enumerate(wanted["loss"], 1))
    assert "validation/macro_f1" in points


def test_a_disk_that_is_full_for_a_while_leaves_no_gap(caplog, monkeypatch):
    log = mlflow.MlflowClient.log_batch
    calls = []

    def full(client, *args, **options):
        calls.append(options)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return log(client, *args, **options)

    callback = kt.callbacks.MLflow(**OFF)
    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", full)
    history = kt.fit(fresh("classification"), DATA, callbacks=callback, **FIT).history
    (warning,) = logged.warnings_in(caplog)
    assert "No space left on device" in warning
    points = figures(callback.run_id)
    assert points["loss"] == list(enumerate(history["loss"], 1))
    assert "validation/macro_f1" in points
    assert status(callback.run_id) == "FINISHED"


def test_an_experiment_is_made_where_there_is_none():
    first, second = (kt.callbacks.MLflow(experiment="tickets", **OFF) for _ in range(2))
    for callback in (first, second):
        kt.fit(fresh("classification"), DATA, callbacks=callback, epochs=1, **OPTIONS)
    found = mlflow.search_runs(experiment_names=["tickets"], output_format="list")
    assert {run.info.run_id for run in found} == {first.run_id, second.run_id}


def test_a_model_that_is_not_logged_cannot_be_registered():
    with pytest.raises(ValueError, match="'films'.*log_model=True"):
        kt.callbacks.MLflow(registered_model_name="films", **OFF)
