"""Callbacks: the guard against NaN, saved weights, and BLEU during training."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from checks import says

from keras_transformers.runs.guardrails import NonFiniteLossError, StopOnNonFiniteLoss
from keras_transformers.runs.resume.snapshots import CheckpointError
from keras_transformers.runs.validation import Validation, ValidationBleu
from keras_transformers.runs.weights_files import SaveWeights


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def rows(count=12):
    return np.ones((count, 2), "float32"), np.ones((count, 1), "float32")


def test_a_loss_that_is_nan_stops_at_its_step_and_keeps_the_last_good_weights(model, tmp_path):
    path = tmp_path / "last.weights.h5"
    x, y = rows()
    callbacks = [StopOnNonFiniteLoss(path), SaveWeights(path)]
    model.fit(x, y, batch_size=4, verbose=0, callbacks=callbacks)
    good = model.get_weights()
    x[5] = np.nan
    message = rf"loss is nan at step 5 \(batch 2 of epoch 1\); the last good weights are in {path}"
    with pytest.raises(NonFiniteLossError, match=message):
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=callbacks)
    model.load_weights(path)
    np.testing.assert_array_equal(model.get_weights()[0], good[0])


def test_weights_that_the_last_batch_spoiled_are_not_saved(model, tmp_path):
    path = tmp_path / "last.weights.h5"
    # The loss is finite before the update, but the weights are not after it.
    model.optimizer.learning_rate = np.inf
    x, y = rows(4)
    with pytest.raises(NonFiniteLossError, match=r"val_loss is .* \(the end of epoch 1"):
        model.fit(
            x,
            y,
            batch_size=4,
            verbose=0,
            validation_data=(x, y),
            callbacks=[StopOnNonFiniteLoss(path), SaveWeights(path)],
        )
    assert not path.exists()


def test_an_infinite_loss_stops_too(model):
    x, y = rows()
    x[:] = 3e38
    with pytest.raises(NonFiniteLossError, match="loss is inf .* no weights"):
        model.fit(x, y, verbose=0, callbacks=[StopOnNonFiniteLoss()])


def test_the_best_epoch_is_kept_and_nan_is_never_better(model, tmp_path):
    saved = SaveWeights(tmp_path / "best.weights.h5", monitor="score")
    saved.set_model(model)
    kept = []
    for epoch, score in enumerate([1.0, float("nan"), 3.0, 2.0]):
        model.set_weights([np.full((2, 1), epoch, "float32"), np.zeros(1, "float32")])
        saved.on_epoch_end(epoch, {"score": score})
        model.load_weights(saved.path)
        kept.append(int(model.get_weights()[0][0, 0]))
    assert kept == [0, 0, 2, 2]
    with pytest.raises(ValueError, match="'score' .*loss"):
        saved.on_epoch_end(4, {"loss": 1.0})


def test_a_write_that_fails_leaves_the_older_weights(model, tmp_path, monkeypatch):
    saved = SaveWeights(tmp_path / "last.weights.h5")
    saved.set_model(model)
    saved.on_epoch_end(0)
    before = saved.path.read_bytes()

    def half(path):  # with h5py's error
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "Can't synchronously write data (file write failed: time")

    monkeypatch.setattr(model, "save_weights", half)
    message = r"weights\.h5: the weights .*\(No space left on device\); the earlier file is kept"
    with pytest.raises(CheckpointError, match=message):
        saved.on_epoch_end(1)
    assert saved.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["last.weights.h5"]


@pytest.mark.slow
def test_where_there_is_no_room_the_program_ends_as_it_says(tmp_path):
    """HDF5 alone would crash with a segmentation fault; the operating system refuses the write."""
    code = f"""
        import resource, keras
        from pathlib import Path
        from keras_transformers.runs.weights_files import write_weights
        from keras_transformers.runs.resume.snapshots import CheckpointError
        model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(1000)])
        path = Path({str(tmp_path)!r}) / "last.weights.h5"
        write_weights(model, path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            write_weights(model, path)
        except CheckpointError as error:
            print(error)
    """
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "KERAS_BACKEND": "numpy"}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert says(result.stdout, "weights ... File too large ... earlier file is kept")
    assert [path.name for path in tmp_path.iterdir()] == ["last.weights.h5"]
    with h5py.File(tmp_path / "last.weights.h5") as file:
        assert file["layers/dense/vars/0"].shape == (100, 1000)


class Translator:
    """A translator that gives these answers, one list per call."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def translate_all(self, texts):
        return next(self.answers)


def test_bleu_enters_the_logs_of_each_epoch():
    """The figure is 0 until it is measured; a resumed run repeats the last one."""
    pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install -e .[translation]")
    references = ["the dog sleeps in the warm sun", "a man runs over the green hill"]
    translator = Translator([["", ""], references])
    pairs = list(zip("ab", references, strict=True))
    options = {"every": 2, "monitor": "val_bleu"}
    validation = Validation(ValidationBleu(pairs, translator), **options)
    seen = []
    for epoch in range(5):
        if epoch == 4:
            before, validation = validation, Validation(dict, **options)
            validation.load_state(before.state())
        logs = {"loss": 1.0}
        validation.on_epoch_end(epoch, logs)
        seen.append(logs["val_bleu"])
    assert seen == pytest.approx([0.0, 0.0, 0.0, 100.0, 100.0])
