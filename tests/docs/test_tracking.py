"""The page on MLflow and Weights & Biases runs with the real packages."""

import importlib.util
from pathlib import Path

import pytest

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: make test-tracking")
pytest.importorskip("wandb", reason="needs Weights & Biases: make test-tracking")

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs/site/notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    try:
        notebooks.run(ROOT / "docs/tracking.md", tmp_path)
    finally:
        mlflow.set_tracking_uri(before)
