"""Losses that are not finite, and memory that runs out."""

import dataclasses
import errno
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import says

from keras_transformers import runs
from keras_transformers.files.errors import no_room
from keras_transformers.runs.guardrails import (
    NonFiniteLossError,
    StopOnNonFiniteLoss,
    is_out_of_memory,
    non_finite_weights,
    out_of_memory_message,
)
from keras_transformers.runs.weights_files import SaveWeights
from keras_transformers.training.distributed import prepare


def make_model(**compile_arguments):
    keras.utils.set_random_seed(0)
    x = keras.Input((2,), name="x")
    model = keras.Model({"x": x}, {"y": keras.layers.Dense(1, name="y")(x)})
    loss = {"y": keras.losses.MeanSquaredError()}
    model.compile("sgd", loss, jit_compile=False, **compile_arguments)
    return model


def batches(wrong=None, count=6):
    """Returns batches of 4 rows, with a NaN in batch `wrong`, counted from 1."""
    x, y = np.ones((4 * count, 2), "float32"), np.ones((4 * count, 1), "float32")
    if wrong is not None:
        x[4 * (wrong - 1) + 3] = np.nan  # in the last row, not in the first part
    return tf.data.Dataset.from_tensor_slices(({"x": x}, {"y": y})).batch(4)


def test_the_batch_is_named_though_logs_are_means(tmp_path):
    path = tmp_path / "last.weights.h5"
    model = make_model()
    callbacks = [StopOnNonFiniteLoss(path), SaveWeights(path)]
    model.fit(batches(), verbose=0, callbacks=callbacks)
    with pytest.raises(NonFiniteLossError, match=rf"loss is nan at step 11 \(batch 5 of .* {path}"):
        model.fit(batches(wrong=5), verbose=0, callbacks=callbacks)
    model.load_weights(path)
    assert non_finite_weights(model) == []


def test_accumulated_batches():
    model = make_model()
    prepare(model, accumulate=2)
    with pytest.raises(NonFiniteLossError, match=r"5 \(batch 5.*1\)"):
        model.fit(batches(wrong=5), verbose=0, callbacks=[StopOnNonFiniteLoss()])


@pytest.mark.slow
def test_several_steps_an_execution():
    model = make_model(steps_per_execution=3)
    with pytest.raises(NonFiniteLossError, match=r"one of the batches 4 to 6 of epoch 1"):
        model.fit(batches(wrong=5), verbose=0, callbacks=[StopOnNonFiniteLoss()])


def test_weights_that_the_last_update_spoiled_are_not_saved(tmp_path):
    path = tmp_path / "last.weights.h5"
    model = make_model()
    model.optimizer.learning_rate = np.inf  # validation would not notice
    callbacks = [StopOnNonFiniteLoss(path), SaveWeights(path)]
    with pytest.raises(NonFiniteLossError, match=r"2 weights \(y/kernel, \.\.\.\).*finite"):
        model.fit(batches(count=1), verbose=0, callbacks=callbacks)
    assert not path.exists()


def exhausted(message):
    return tf.errors.ResourceExhaustedError(None, None, message)


def test_errors_that_mean_memory():
    assert is_out_of_memory(exhausted("OOM when allocating tensor"))
    assert is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying"))  # XLA
    assert not is_out_of_memory(tf.errors.InvalidArgumentError(None, None, "shapes"))


def test_a_full_disk_is_no_lack_of_memory():
    """TensorFlow raises the same error for both."""
    errors = [
        exhausted("runs/a/tensorboard/events; No space left on device"),
        OSError(errno.ENOSPC, "Can't synchronously write data (file write failed: ..."),  # h5py
        OSError(errno.EROFS, os.strerror(errno.EROFS), "config.json"),
    ]
    reasons = ["No space left on device"] * 2 + ["Read-only file system"]
    assert [no_room(error) for error in errors] == reasons
    assert not any(map(is_out_of_memory, errors))
    assert not no_room(exhausted("OOM when allocating tensor"))
    assert not no_room(FileNotFoundError(errno.ENOENT, "No such file or directory"))


def test_the_batch_that_would_fit():
    tensor = exhausted(
        "OOM when allocating tensor with shape[64,128,30522] and type float on /job:localhost/"
        "replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    )
    # 1.0002 GB beside 7 GB: at most 55 of 64 fit, so half does.
    message = out_of_memory_message(tensor, batch_size=64, accumulate=2, bytes_in_use=7 * 10**9)
    assert says(message, "1.00 GB ... 7.00 GB in use")
    assert "at most 55 of 64 examples" in message
    assert says(message, "--batch-size 32 --accumulate 4")
    # 6 GiB beside 1: at most 9 of 64 fit, so half is too much.
    xla = RuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6442450944 bytes"
    )
    message = out_of_memory_message(xla, batch_size=64, accumulate=1, bytes_in_use=2**30)
    assert "at most 9 of 64" in message
    assert "--batch-size 8 --accumulate 8" in message
    # Nothing is known: half.
    message = out_of_memory_message(exhausted("OOM"), batch_size=24, accumulate=1)
    assert says(message, "out of memory ... 24 examples ... --batch-size 12 --accumulate 2")
    assert "a lower learning rate" in out_of_memory_message(exhausted("OOM"), batch_size=24)
    assert "the batch cannot be smaller" in out_of_memory_message(exhausted("OOM"), batch_size=1)


def test_memory_that_runs_out_in_a_recipe_ends_it_with_one_line(monkeypatch, capsys, tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(runs.Options):
        batch_tokens: int = 4096

    def main(config, run):
        class Full(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                raise exhausted("OOM when allocating tensor with shape[8] and type float")

        make_model().fit(batches(), verbose=0, callbacks=[Full()])

    monkeypatch.setattr(sys, "argv", ["recipe.py", "--runs-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        runs.command_line(main, Config)
    assert stopped.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says(line, "error: out of memory ... 4096 tokens ... --batch-tokens 2048 --accumulate 2")


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "log.jsonl"), "log.jsonl"),
        (
            exhausted("{{function_node __wrapped__SaveV2}} a; No space left on device\nmore"),
            "a; No space left on device",
        ),
    ],
)
def test_a_full_disk_ends_a_recipe_with_one_line(monkeypatch, capsys, error, place, tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(runs.Options):
        batch_size: int = 8

    def main(config, run):
        run.is_prepared = True
        raise error

    monkeypatch.setattr(sys, "argv", ["recipe.py", "--runs-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        runs.command_line(main, Config)
    assert stopped.value.code == 1
    message = "No space left on device; free some space, and run the same command with --resume"
    assert capsys.readouterr().err == f"error: {place}: {message}\n"
