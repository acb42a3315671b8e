"""The Keras callback of Weights & Biases, offline: it shows a task's own figures."""

import pytest
from test_every_task import DATA, fresh, training

import keras_transformers as kt

wandb = pytest.importorskip("wandb", reason="needs Weights & Biases: make test-tracking")


@pytest.mark.parametrize("task", ["classification", "embedding"])
def test_its_summary_has_the_figures_of_the_task_and_the_best_epoch(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from wandb.integration.keras import WandbMetricsLogger

    data, *_ = DATA[task]
    with wandb.init(project="films", mode="offline", dir=tmp_path) as run:
        options = training(task) | {"epochs": 2}
        logger = WandbMetricsLogger()
        history = kt.fit(fresh(task), data, validation=data, callbacks=logger, **options).history
        summary = dict(run.summary)
    measured = {name for name in history if name.startswith("val_")}
    assert measured > {"val_loss"} or task == "embedding"
    for name in {*measured, "loss", "best_epoch"}:
        assert summary[f"epoch/{name}"] == pytest.approx(history[name][-1])
