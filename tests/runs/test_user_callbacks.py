"""Callbacks of a user that would be undone, or fail late, are refused before the first step."""

import functools
import itertools

import keras
import pytest

from keras_transformers.runs.resume.callback import Resume
from keras_transformers.runs.user_callbacks import (
    as_callbacks,
    check_callbacks,
    sets_learning_rate,
)
from keras_transformers.training.averaging import SwapAverageWeights
from keras_transformers.training.optimizers import adam, adamw
from keras_transformers.training.schedules import WarmupLinearDecay

SCHEDULE = WarmupLinearDecay(0.1, warmup_steps=1, total_steps=4)
EARLY = keras.callbacks.EarlyStopping


@functools.cache
def compiled(*, schedule=False, ema=None):
    """Returns a model; `check_callbacks` only looks at its optimizer."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(adam(SCHEDULE if schedule else 0.1, ema=ema), "mse", jit_compile=False)
    return model


def check(callback, *, monitor="val_accuracy", weights=(), **model):
    check_callbacks([callback], compiled(**model), monitor=monitor, weights=weights)


def test_one_callback_needs_no_list():
    stopping = EARLY()
    assert as_callbacks(stopping) == as_callbacks([stopping]) == [stopping]
    assert as_callbacks(None) == as_callbacks(()) == []


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("early", ["'early'", "keras.callbacks.Callback"]),
        (3, ["callbacks=3", "keras.callbacks.Callback"]),
        ([EARLY(), print], ["callbacks[1]", "print", "keras.callbacks.Callback"]),
        (EARLY, ["EarlyStopping(...)", "class"]),
        ([EARLY], ["callbacks[0]", "EarlyStopping(...)"]),
    ],
)
def test_what_is_no_callback_is_named(given, parts):
    with pytest.raises(TypeError) as error:
        as_callbacks(given)
    assert all(part in str(error.value) for part in parts), error.value


@pytest.mark.parametrize(
    "rule",
    [
        {"monitor": "val_loss"},
        {"monitor": "val_accuracy", "mode": "min"},
        {"monitor": "val_accuracy", "min_delta": 0.01},
        {"monitor": "val_accuracy", "start_from_epoch": 2},
        {"monitor": "accuracy"},
    ],
)
def test_two_rules_for_the_best_epoch_disagree(rule):
    with pytest.raises(ValueError, match="EarlyStopping") as error:
        check(EARLY(restore_best_weights=True, **rule))
    options = {"mode": "auto", **rule}
    parts = [f"{name}={value!r}" for name, value in options.items()]
    for part in (*parts, "highest val_accuracy", "leave out restore_best_weights"):
        assert part in str(error.value)
    check(EARLY(**rule))  # which only stops
    check(EARLY(restore_best_weights=True, **rule), monitor=None)  # the only rule


def test_rules_that_agree_are_one():
    check(EARLY("val_accuracy", restore_best_weights=True))
    check(EARLY("val_bleu", mode="max", restore_best_weights=True), monitor="val_bleu")
    with pytest.raises(ValueError, match="mode='max'"):  # Keras could not tell
        check(EARLY("val_bleu", restore_best_weights=True), monitor="val_bleu")


def test_what_restores_another_state_is_refused(tmp_path):
    for callback in (keras.callbacks.BackupAndRestore(tmp_path), Resume(tmp_path)):
        with pytest.raises(ValueError, match=f"{type(callback).__name__}.*leave it out.*folder"):
            check(callback)


def test_a_file_of_the_run_is_not_written_twice(tmp_path):
    own = tmp_path / "best.weights.h5"
    with pytest.raises(ValueError, match=r"ModelCheckpoint.*best\.weights\.h5.*another file"):
        check(keras.callbacks.ModelCheckpoint(own, save_weights_only=True), weights=[own])
    mine = tmp_path / "mine.weights.h5"
    check(keras.callbacks.ModelCheckpoint(mine, save_weights_only=True), weights=[own])


def test_averages_need_an_optimizer_that_keeps_them():
    for callback in (SwapAverageWeights(), keras.callbacks.SwapEMAWeights(swap_on_epoch=True)):
        check(callback, ema=0.9)
        with pytest.raises(ValueError, match="use_ema=True"):
            check(callback)


class Cooling(keras.callbacks.Callback):
    """Sets the rate as an attribute, from a base class's method."""

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        optimizer.learning_rate = 0.5 * float(optimizer.learning_rate)


class CoolingMore(Cooling):
    """Inherits it."""


class Assigning(keras.callbacks.Callback):
    """Assigns to the variable, in a function inside a method."""

    def on_train_batch_end(self, batch, logs=None):
        def lower():
            self.model.optimizer.learning_rate.assign(1e-4)

        lower()


class Remembering(keras.callbacks.Callback):
    """Reads the rate, and has an attribute of the same name."""

    def __init__(self, learning_rate=0.1):
        super().__init__()
        self.learning_rate = learning_rate
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.learning_rate = float(self.model.optimizer.learning_rate)
        self.seen.append(self.learning_rate)


def setting():
    """Yields callbacks that set the learning rate."""
    yield keras.callbacks.ReduceLROnPlateau()
    yield keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate)
    yield from (Cooling(), CoolingMore(), Assigning())
    model = compiled()
    yield keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: model.optimizer.learning_rate.assign(0.1)
    )


def leaving():
    """Yields callbacks that leave the learning rate alone."""
    yield from (Remembering(), EARLY(), SwapAverageWeights(), keras.callbacks.TerminateOnNaN())
    yield keras.callbacks.TensorBoard("unused")
    yield keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: None)


def test_a_rate_that_a_schedule_decides_cannot_be_set():
    for callback in setting():
        assert sets_learning_rate(callback), callback
        check(callback)
        with pytest.raises(ValueError, match=f"{type(callback).__name__}.*learning rate") as error:
            check(callback, schedule=True)
        assert "optimizer=" in str(error.value)
    for callback in leaving():
        assert not sets_learning_rate(callback), callback


def test_the_optimizer_in_the_message_takes_such_a_callback():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(adamw(1e-4), "mse")
    check_callbacks(list(setting()), model, monitor=None, weights=())


def test_rates_of_all_callbacks_of_keras():
    """A callback of Keras that sets the rate is found by its code, whatever its name."""
    kinds = [kind for kind in vars(keras.callbacks).values() if isinstance(kind, type)]
    found = {kind.__name__ for kind in kinds if sets_learning_rate(object.__new__(kind))}
    assert found == {"LearningRateScheduler", "ReduceLROnPlateau"}
    assert len(list(itertools.chain(setting(), leaving()))) == 12
