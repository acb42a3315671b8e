"""The progress bar: what it shows, and that there is no second one."""

import io

import keras
import numpy as np
import pytest
from rich.console import Console

from keras_transformers.runs import callbacks, progress
from keras_transformers.runs.options import Logging
from keras_transformers.runs.progress import LineProgress, NoProgress, RichProgress


def fit(callbacks, **arguments):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    model.fit(x, y, batch_size=2, callbacks=callbacks, **arguments)


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)


def test_a_bar_with_the_time_left(monkeypatch, capsys):
    now = iter(range(0, 10_000, 10))
    monkeypatch.setattr(progress, "monotonic", lambda: next(now))
    console = terminal()
    fit([RichProgress(console)], epochs=3, initial_epoch=1, validation_data=(np.ones((2, 2)),) * 2)
    shown = console.file.getvalue()
    assert "epoch 2/3" in shown
    assert "epoch 3/3" in shown
    assert "12/12" in shown
    assert " left" in shown
    assert "epoch 2: " in shown
    assert "val_loss" in shown
    assert "0:00 left" in shown
    assert shown.rstrip().endswith("\x1b[?25h")  # the cursor is back
    assert capsys.readouterr().out == ""  # Keras adds no bar


def test_the_time_left_is_that_of_all_epochs(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(progress, "monotonic", lambda: Clock.now)
    console = terminal()
    bar = RichProgress(console)
    bar.set_params({"epochs": 3, "steps": 10, "verbose": 1})
    bar.on_train_begin()
    bar.on_epoch_begin(1)  # resumed after the first epoch
    Clock.now = 60.0
    bar.on_train_batch_end(4, {"loss": 1.5})  # 5 of the 20 remaining steps
    assert "3:00 left" in console.file.getvalue()
    assert "loss 1.5" in console.file.getvalue()
    bar.on_train_end()


def test_batches_that_were_done_before_take_no_time(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(progress, "monotonic", lambda: Clock.now)
    console = terminal()
    bar = RichProgress(console)
    bar.set_params({"epochs": 2, "steps": 10, "verbose": 1})
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    Clock.now = 60.0
    for batch in (8, 9):  # resumed in the middle of the epoch
        bar.on_train_batch_begin(batch)
        bar.on_train_batch_end(batch, {"loss": 1.5})
        Clock.now += 60.0
    assert "10:00 left" in console.file.getvalue()  # two of twelve in two minutes
    bar.on_train_end()


def test_steps_that_are_not_known_are_counted_in_the_first_epoch():
    console = terminal()
    bar = RichProgress(console)
    bar.set_params({"epochs": 2, "steps": None, "verbose": 1})
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    for batch in range(5):
        bar.on_train_batch_end(batch, {"loss": 1.0})
    bar.on_epoch_end(0, {"loss": 1.0})
    assert "5/10" in console.file.getvalue()
    bar.on_train_end()


def test_an_error_in_training_gives_the_terminal_back(monkeypatch):
    registered = []
    monkeypatch.setattr(progress.atexit, "register", registered.append)

    def fail(batch, logs):
        raise ArithmeticError

    console = terminal()
    with pytest.raises(ArithmeticError):
        fit([RichProgress(console), keras.callbacks.LambdaCallback(on_train_batch_end=fail)])
    registered[0]()
    assert console.file.getvalue().rstrip().endswith("\x1b[?25h")


def test_a_run_that_is_done_already():
    console = terminal()
    fit([RichProgress(console)], epochs=2, initial_epoch=2)
    assert console.file.getvalue().rstrip().endswith("\x1b[?25h")


def test_quiet_is_quiet(capsys):
    fit([NoProgress()], epochs=2, validation_data=(np.ones((2, 2)),) * 2)
    assert capsys.readouterr().out == ""


def test_which_progress_a_run_has(tmp_path, monkeypatch):
    def kinds(**options):
        files = {"last": "last.weights.h5", "best": "best.weights.h5", "monitor": "loss"}
        found = callbacks.standard_callbacks(tmp_path, Logging(**options), **files)
        return [type(c) for c in found if isinstance(c, LineProgress | NoProgress)]

    assert kinds(quiet=True) == [NoProgress]
    assert kinds() == [LineProgress]  # beside Keras' line per epoch
    monkeypatch.setattr(callbacks.sys.stdout, "isatty", lambda: True, raising=False)
    assert kinds() == [RichProgress]


def test_a_log_gets_a_line_with_the_time_left_now_and_then(monkeypatch, capsys):
    class Clock:
        now = 0.0

    monkeypatch.setattr(progress, "monotonic", lambda: Clock.now)
    lines = LineProgress()
    lines.set_params({"epochs": 2, "steps": 10, "verbose": 2})
    lines.on_train_begin()
    lines.on_epoch_begin(0)
    for batch in range(5):
        lines.on_train_batch_begin(batch)
        Clock.now += 4.0
        lines.on_train_batch_end(batch, {"loss": 1.5})
    assert capsys.readouterr().out == "epoch 1/2, step 3/10, 1:08 left, loss 1.5\n"
