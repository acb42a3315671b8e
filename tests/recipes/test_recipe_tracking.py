"""A recipe's run in MLflow's own database: figures, reports and a model."""

import pytest
from recipe_runs import run, save_sentences

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: make test-tracking")
pandas = pytest.importorskip("pandas")


def test_figures_reports_and_the_model_are_logged(tmp_path, monkeypatch):
    """Figures may have any names, such as those with and without a temperature."""
    monkeypatch.chdir(tmp_path)  # where the artifacts go
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    try:
        save_sentences(tmp_path)
        files = {"train_file": tmp_path / "train.tsv", "dev_file": tmp_path / "dev.tsv"}
        options = {"num_buckets": 100, "epochs": 2, "runs_dir": tmp_path / "runs", "name": "mine"}
        outcome = run("fasttext_classification", "--mlflow", "--calibrate", **files, **options)
        (logged,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
        assert (logged.info.status, logged.info.run_name) == ("FINISHED", "mine")
        points = logged.data.metrics
        assert points["temperature"] == pytest.approx(outcome.metrics["temperature"])
        uncalibrated = outcome.metrics["dev_log_loss, uncalibrated"]
        assert points["dev_log_loss uncalibrated"] == pytest.approx(uncalibrated)
        artifacts = mlflow.MlflowClient().list_artifacts(logged.info.run_id, "reports/dev")
        assert "reports/dev/report.json" in [artifact.path for artifact in artifacts]
        (model,) = mlflow.search_logged_models(output_format="list")
        answers = mlflow.pyfunc.load_model(model.model_uri).predict(
            pandas.DataFrame({"text": ["some words"]}, index=["a"])
        )
        assert list(answers.index) == ["a"]
    finally:
        mlflow.set_tracking_uri(before)
