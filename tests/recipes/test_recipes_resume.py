"""Recipes, stopped in the middle of an epoch, resume bit for bit."""

import json
import shutil
import signal

import keras
import pytest
import tensorflow as tf
from checks import newest_state
from recipe_runs import error_of, run
from recipe_toys import (
    classification,
    elmo_tagging,
    embedding,
    fasttext_classification,
    feature_based,
    few_shot,
    glue,
    gpt_classification,
    image_classification,
    multi_label_classification,
    multiple_choice,
    pretrain_electra,
    question_answering,
    tagging,
)

from keras_transformers.runs.resume.callback import Resume

STOPPED_AT = 8  # updates, early in the second epoch


@pytest.fixture(autouse=True)
def deterministic_operations():
    """Operations must be deterministic, as bits are compared."""
    from tensorflow.python.util import _pywrap_determinism

    tf.config.experimental.enable_op_determinism()
    yield
    _pywrap_determinism.enable(False)


def stop(patch, *, by_signal, folder):
    """Ends training as a scheduler does, or copies what kill -9 would leave at that moment."""
    continue_training = Resume.on_train_batch_end

    def end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == STOPPED_AT:
            if by_signal:
                signal.raise_signal(signal.SIGTERM)
            else:
                shutil.copytree(folder, folder.with_name("killed"))
        continue_training(self, batch, logs)

    patch.setattr(Resume, "on_train_batch_end", end)


def figures(folder):
    """Returns the run's figures without times and commands."""
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["seconds"], metrics["origin"]
    for epoch in metrics["epochs"]:
        assert epoch.pop("tokens_per_second") > 0
        assert 0 < epoch.pop("mfu") < 1
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "by_signal", "changes"),
    [
        (classification, False, {}),
        (image_classification, True, {}),
        (gpt_classification, False, {}),
        (tagging, True, {}),
        (feature_based, False, {}),
        (question_answering, False, {}),
        (multiple_choice, True, {}),
        (multi_label_classification, False, {}),
        (embedding, False, {}),
        (few_shot, False, {}),
        (glue, False, {}),
        (elmo_tagging, False, {}),
        (fasttext_classification, False, {}),
        (pretrain_electra, False, {}),
        (classification, True, {"static_shapes": 2}),
        (tagging, False, {"static_shapes": 1}),
    ],
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    tmp_path, monkeypatch, capsys, make, by_signal, changes
):
    keras.utils.set_random_seed(0)
    recipe, folder = make.__name__, tmp_path / "runs" / "run"
    options = {
        "epochs": 2,
        "checkpoint_every": 3,
        "peak_flops": 1e12,
        "runs_dir": folder.parent,
        "name": folder.name,
    } | make(tmp_path)
    options |= changes
    whole = folder.with_name("whole")
    with monkeypatch.context() as stopping:
        if by_signal:
            run(recipe, **options)
            folder.rename(whole)
            stop(stopping, by_signal=True, folder=folder)
            with pytest.raises(SystemExit) as ended:
                run(recipe, **options)
            assert ended.value.code == 75
        else:
            stop(stopping, by_signal=False, folder=folder)
            run(recipe, **options)
            folder.rename(whole)
            folder.with_name("killed").rename(folder)
    assert not (folder / "metrics.json").exists()
    if make is classification:
        other = options | {"learning_rate": 0.5, "seed": 1, "resume": True}
        error = error_of(recipe, capsys, **other)
        assert "learning_rate was 0.001, is 0.5, seed was 0, is 1;" in error
    resumed = run(recipe, "--quiet", "--resume", **options)
    assert f"resuming after 1 epochs and {3 if by_signal else 1} batches" in resumed.printed
    assert figures(folder) == figures(whole)
    expected, found = newest_state(whole), newest_state(folder)
    assert expected.keys() == found.keys()
    for name in expected:
        if name.partition("_")[0] in ("variable", "optimizer"):
            assert expected[name].tobytes() == found[name].tobytes(), name
