"""Stopped after an epoch and gone on with: as if nothing had happened."""

import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformers.training import runs
from keras_transformers.training.checkpoints import SaveWeights
from keras_transformers.training.optimizers import adamw
from keras_transformers.training.resume import TrainingState, check_same

INPUTS = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")


def compiled(units=1):
    """A model with random numbers of its own, each time from the same seed."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(units)]
    )
    model.compile(adamw(0.1), "mse", metrics=["mae"])
    return model


def fit(model, callbacks, *, first=0, end=4):
    targets = INPUTS.sum(axis=1, keepdims=True)
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    return model.fit(INPUTS, targets, initial_epoch=first, epochs=end, **options)


def test_a_training_that_goes_on_equals_one_that_was_not_stopped(tmp_path):
    whole, whole_state = compiled(), TrainingState(tmp_path / "whole.npz")
    fit(whole, [whole_state])

    stopped = TrainingState(tmp_path / "state.npz")
    fit(compiled(), [stopped], end=2)
    assert [epoch["epoch"] for epoch in stopped.epochs] == [1, 2]

    model, state = compiled(), TrainingState(tmp_path / "state.npz")
    best = SaveWeights(tmp_path / "best.weights.h5", monitor="mae")
    state.restore(model, [best, state])
    assert int(model.optimizer.iterations) == 6
    assert best.best == max(epoch["mae"] for epoch in stopped.epochs)
    fit(model, [state], first=len(state.epochs))
    assert state.epochs == whole_state.epochs
    np.testing.assert_array_equal(model.get_weights()[0], whole.get_weights()[0])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_no_file_is_a_fresh_start(tmp_path):
    model = compiled()
    before = model.get_weights()[0]
    state = TrainingState(tmp_path / "state.npz")
    state.restore(model)
    assert state.epochs == []
    np.testing.assert_array_equal(model.get_weights()[0], before)


def test_what_cannot_be_restored_is_named(tmp_path):
    state = TrainingState(tmp_path / "state.npz")
    fit(compiled(), [state], end=1)
    with pytest.raises(ValueError, match="another model or optimizer: 9 variables, of 16 numbers"):
        TrainingState(state.path).restore(compiled(units=2))
    state.path.write_bytes(state.path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"state.npz: damaged .*: remove it"):
        TrainingState(state.path).restore(compiled())


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
