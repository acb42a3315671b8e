"""A training stopped at any moment resumes as if nothing had happened."""

import itertools
import signal
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.batching import index_batches
from keras_transformers.evaluation.perplexity import TokenAccuracy
from keras_transformers.runs.preemption import PREEMPTED_STATUS, Preempted
from keras_transformers.runs.resume import callback
from keras_transformers.runs.resume.callback import Position, Resume
from keras_transformers.runs.resume.snapshots import CheckpointError, Snapshots
from keras_transformers.runs.telemetry import Telemetry
from keras_transformers.runs.weights_files import SaveWeights
from keras_transformers.training.averaging import AverageLastWeights, SwapAverageWeights
from keras_transformers.training.optimizers import adam, adamw

STEPS, EPOCHS, BATCH = 5, 3, 4
INPUTS = np.random.default_rng(0).normal(size=(18, 6)).astype("float32")  # the last batch is short
LABELS = (INPUTS.sum(axis=1) > 0).astype("int32")[:, None]


class Stop(keras.callbacks.Callback):
    """Ends `fit` as a crash would, after a number of updates."""

    def __init__(self, step, *, at_epoch_end=False):
        super().__init__()
        self.step, self.at_epoch_end = step, at_epoch_end

    def on_train_batch_end(self, batch, logs=None):
        if not self.at_epoch_end and int(self.model.optimizer.iterations) == self.step:
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch, logs=None):
        if self.at_epoch_end and int(self.model.optimizer.iterations) == self.step:
            raise KeyboardInterrupt


class Batches(keras.callbacks.Callback):
    """Records the number and the logs of each batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, dict(logs or {})))


def compiled(units=2, *, optimizer=None, dropout=0.5, name=None):
    """Returns a model with its own random numbers, always from the same seed."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(units),
            keras.layers.Reshape((1, units)),  # a sentence of one token
        ],
        name=name,
    )
    model.compile(
        optimizer or adam(0.02, clip_norm=1.0, ema=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[TokenAccuracy("accuracy")],
        jit_compile=False,
    )
    return model


def batches(skip=0):
    """Returns batches, shuffled in each epoch by the seed alone, with weights."""
    weights = np.linspace(0.5, 1.5, len(INPUTS), dtype="float32")[:, None]
    dataset = tf.data.Dataset.from_tensor_slices((INPUTS, LABELS, weights))
    return dataset.shuffle(len(INPUTS), seed=3).batch(BATCH).repeat().skip(skip)


def others(folder):
    """Returns callbacks with a state, ours and Keras'."""
    return [
        SwapAverageWeights(),
        AverageLastWeights(num_kept=2, frequency=2),
        SaveWeights(folder / "best.weights.h5", monitor="val_accuracy"),
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(str(folder / "low.weights.h5"), save_best_only=True),
        Telemetry(every=2),
    ]


def train(folder, *, every=None, stop=None, model=None, epochs=EPOCHS, callbacks=None, **options):
    """Trains from the folder's checkpoint; returns all that must not differ."""
    model = model or compiled()
    folder.mkdir(exist_ok=True)
    callbacks = others(folder) if callbacks is None else callbacks
    stateful = list(callbacks)
    resume = Resume(folder / "checkpoints", every=every, **options)
    callbacks = [*callbacks, *([stop] if stop else []), resume]
    position = resume.restore(model, callbacks)
    history = model.fit(
        batches(position.step),
        steps_per_epoch=STEPS,
        validation_data=(INPUTS[:6], LABELS[:6]),
        initial_epoch=position.epoch,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
    )
    return {
        "weights": [v.numpy() for v in model.variables],
        "optimizer": [v.numpy() for v in model.optimizer.variables],
        "callbacks": [
            array
            for callback in stateful
            if hasattr(callback, "state")
            for array in callback.state()
        ],
        "patience": [(c.wait, c.best) for c in stateful if hasattr(c, "wait")],
        "history": history.history,
        "numbers": history.epoch,
        "epochs": resume.epochs,
        "position": resume.position,
    }


def same(left, right):
    """Returns whether two values are equal bit for bit."""
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"), every=2)


FEW = (3, False), (11, False)  # updates, and whether the epoch's end was reached too
MANY = (
    (1, False),  # before the first checkpoint
    (3, False),
    (5, False),  # after the last batch of an epoch, with a checkpoint of batch 4
    (5, True),  # after validation, before its checkpoint
    (8, False),
    (11, False),  # has a checkpoint of the last batch before validation
)


@pytest.mark.parametrize("stops", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["2", "6"])
def test_a_training_that_was_stopped_again_and_again_equals_one_that_was_not(
    tmp_path, whole, stops
):
    for step, at_epoch_end in stops:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, every=2, stop=Stop(step, at_epoch_end=at_epoch_end))
    found = train(tmp_path, every=2)
    for name, value in whole.items():
        assert same(found[name], value), name
    assert found["position"] == (EPOCHS, 0, EPOCHS * STEPS)
    assert {len(values) for values in found["history"].values()} == {EPOCHS}
    assert np.ptp(found["history"]["loss"]) > 0
    again = train(tmp_path, every=2)  # nothing is left to do
    assert same({**again, "callbacks": 0}, {**whole, "callbacks": 0})


@pytest.mark.slow
def test_the_position_before_validation_is_kept(tmp_path, whole):
    """No update is left in the epoch, whose curves still have all that the updates said."""
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, every=STEPS, stop=Stop(STEPS, at_epoch_end=True))
    resume = Resume(tmp_path / "checkpoints")
    assert resume.restore(compiled(), [*others(tmp_path), resume]) == Position(0, STEPS, STEPS)
    found = train(tmp_path, every=2)
    assert {"loss", "gradient_norm", "val_accuracy"} <= found["history"].keys()
    assert same(found["history"], whole["history"])
    assert same(found["weights"], whole["weights"])


@pytest.mark.slow
def test_callbacks_hear_of_each_batch_once_and_by_its_number(tmp_path):
    def model():
        return compiled(optimizer=adamw(0.05))

    def hearing():
        heard = Batches(), []
        begin = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: heard[1].append(batch)
        )
        return heard, [heard[0], begin]

    (reference, _), callbacks = hearing()
    train(tmp_path / "a", model=model(), callbacks=callbacks, epochs=1)
    (first, _), callbacks = hearing()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", every=3, model=model(), callbacks=callbacks, stop=Stop(4), epochs=2)
    (last, numbers), callbacks = hearing()
    train(tmp_path / "b", every=3, model=model(), callbacks=callbacks, epochs=2)
    assert first.seen[:3] + last.seen[: STEPS - 3] == reference.seen  # the running means too
    assert numbers == [3, 4, 0, 1, 2, 3, 4]


def test_a_dataset_that_repeats_goes_on_like_one_that_is_iterated_again():
    """`repeat().skip(step)` gives the batches that `fit` takes from a one-pass dataset."""

    def shuffled():
        return tf.data.Dataset.range(7).shuffle(7, seed=1).batch(2)

    def by_length():
        return index_batches(np.arange(1, 8), batch_size=2, shuffle=True, seed=1)

    for make in (shuffled, by_length):
        once = make()
        passes = [[batch.tolist() for batch in once.as_numpy_iterator()] for _ in range(3)]
        assert passes[0] != passes[1]
        repeated = make().repeat().skip(5).take(7).as_numpy_iterator()
        following = [*passes[1][1:], *passes[2]]
        assert [batch.tolist() for batch in repeated] == following


def test_early_stopping_is_not_forgotten(tmp_path):
    """If a callback stopped training and the run was killed later, no further epoch is trained."""

    def stopping():
        return [keras.callbacks.EarlyStopping("loss", patience=1, mode="max")]

    first = train(tmp_path, callbacks=stopping(), epochs=6)
    assert first["position"].epoch < 6
    second = train(tmp_path, callbacks=stopping(), epochs=6)
    assert same(second["weights"], first["weights"])
    assert same(second["history"], first["history"])


@pytest.mark.slow
def test_a_learning_rate_that_was_lowered_stays_so(tmp_path):
    def plateau():
        return [keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=10, verbose=0)]

    def model():
        return compiled(optimizer=keras.optimizers.SGD(0.1, momentum=0.5))

    first = train(tmp_path / "whole", model=model(), callbacks=plateau())
    assert first["history"]["learning_rate"][-1] < 0.1
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", every=4, model=model(), callbacks=plateau(), stop=Stop(13))
    second = train(tmp_path / "b", every=4, model=model(), callbacks=plateau())
    assert same(second["history"], first["history"])
    assert same(second["weights"], first["weights"])


@pytest.mark.slow
def test_a_learning_rate_that_each_epoch_lowers_is_lowered_once(tmp_path):
    """The stopped epoch begins again, but not for the schedule."""

    def halving():
        return [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2), Telemetry()]

    def model():
        return compiled(optimizer=keras.optimizers.SGD(0.1, momentum=0.5))

    first = train(tmp_path / "whole", model=model(), callbacks=halving(), epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", every=2, model=model(), callbacks=halving(), stop=Stop(8), epochs=2)
    second = train(tmp_path / "b", every=2, model=model(), callbacks=halving(), epochs=2)
    assert first["history"]["learning_rate"] == pytest.approx([0.05, 0.025])
    assert same(second["history"], first["history"])
    assert same(second["weights"], first["weights"])


@pytest.mark.slow
def test_one_seed_gives_the_same_bits_twice(tmp_path, whole):
    assert same(train(tmp_path, every=2), whole)
    other = compiled()
    other.layers[1].seed_generator.state.assign([7, 0])
    assert not same(train(tmp_path / "other", model=other)["weights"], whole["weights"])


@pytest.mark.slow
def test_a_damaged_checkpoint_is_left_out_with_a_warning(tmp_path, whole, caplog):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, every=2, stop=Stop(5))
    newest, before = Snapshots(tmp_path / "checkpoints").paths()
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    resume = Resume(tmp_path / "checkpoints")
    position = resume.restore(compiled(), [*others(tmp_path), resume])
    assert position == Position(0, 2, 2)
    assert f"{newest} is damaged and skipped" in caplog.text
    found = train(tmp_path, every=2)
    assert same(found["weights"], whole["weights"])
    assert not before.exists()
    assert not newest.exists()


class Terminate(keras.callbacks.Callback):
    """Sends SIGTERM to the process once, at a given moment of a step; has a state."""

    def __init__(self, moment="", step=0):
        super().__init__()
        self.moment, self.step = moment, step

    def at(self, moment):
        if moment == self.moment and int(self.model.optimizer.iterations) == self.step:
            self.moment = ""
            signal.raise_signal(signal.SIGTERM)

    def on_train_batch_begin(self, batch, logs=None):
        self.at("batch")

    def on_test_batch_end(self, batch, logs=None):
        self.at("validation")

    def state(self):
        self.at("saving")
        return []

    def load_state(self, arrays):
        assert not arrays


@pytest.mark.parametrize(
    ("moment", "step", "position"),
    [
        ("batch", 6, (1, 2, 7)),
        pytest.param("saving", 5, (1, 0, 5), marks=pytest.mark.slow),  # at the end of an epoch
        pytest.param("validation", 5, (1, 0, 5), marks=pytest.mark.slow),
        pytest.param("saving", 6, (1, 2, 7), marks=pytest.mark.slow),
        pytest.param("validation", 15, (3, 0, 15), marks=pytest.mark.slow),  # of the last epoch
    ],
)
def test_termination_saves_at_the_next_batch_and_asks_for_another_try(
    tmp_path, whole, moment, step, position
):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted) as error:
        train(tmp_path, every=2, stop=Terminate(moment, step))
    assert error.value.code == PREEMPTED_STATUS == 75
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, "the process is about to end"
    signal.signal(signal.SIGTERM, handler)
    resume = Resume(tmp_path / "checkpoints")
    assert resume.restore(compiled(), [*others(tmp_path), Terminate(), resume]) == position
    found = train(tmp_path, every=2, stop=Terminate())
    assert same(found["weights"], whole["weights"])
    assert same(found["history"], whole["history"])
    assert signal.getsignal(signal.SIGTERM) == handler


@pytest.mark.slow
def test_a_disk_that_is_full_stops_training_and_leaves_the_last_checkpoint(
    tmp_path, whole, monkeypatch
):
    def fill(folder):
        monkeypatch.setattr("os.fsync", lambda descriptor: Path("/dev/full").write_bytes(bytes(1)))

    class Fill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 7:
                fill(tmp_path)

    with pytest.raises(CheckpointError, match="checkpoints: .*No space"):
        train(tmp_path, every=2, stop=Fill())
    monkeypatch.undo()
    names = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert sorted(name[:14] for name in names) == [".lock", "step-000000005", "step-000000006"]
    assert same(train(tmp_path, every=2)["weights"], whole["weights"])


def test_weights_that_are_not_finite_are_not_saved(tmp_path, caplog):
    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 4:
                self.model.trainable_variables[0].assign(np.full((6, 8), np.nan))

    train(tmp_path, every=2, stop=Spoil(), callbacks=[], epochs=1)
    [path] = Snapshots(tmp_path / "checkpoints").paths()
    assert path.name.startswith("step-000000002-")
    assert "not saved: 1 weights (" in caplog.text


def test_what_cannot_be_restored_is_named(tmp_path):
    def restore(model, callbacks=()):
        resume = Resume(tmp_path / "checkpoints")
        return resume.restore(model, [*callbacks, resume])

    train(tmp_path, callbacks=[AverageLastWeights()], epochs=1)
    with pytest.raises(
        ValueError, match=r"another model: 5 variables.*kernel was \(8, 2\), is \(8, 3"
    ):
        restore(compiled(units=3), [AverageLastWeights()])
    with pytest.raises(ValueError, match="optimizer: Adam .*SGD .*resume with the same"):
        restore(compiled(optimizer=keras.optimizers.SGD(0.1)), [AverageLastWeights()])
    with pytest.raises(ValueError, match=r"\['AverageLastWeights'\].*\[\]"):
        restore(compiled())
    for path in Snapshots(tmp_path / "checkpoints").paths():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"1 checkpoints.*remove"):
        restore(compiled(), [AverageLastWeights()])


def test_a_wrong_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match="every=0: expected 1 or more batches"):
        Resume(tmp_path, every=0)
    with pytest.raises(ValueError, match="keep=0: expected 1 checkpoint or more"):
        Resume(tmp_path, keep=0)
    resume = Resume(tmp_path / "checkpoints")
    with pytest.raises(ValueError, match="last of the callbacks"):
        resume.restore(compiled(), [resume, AverageLastWeights()])
    with pytest.raises(ValueError, match=r"Resume.restore\(model, callbacks\).*fit"):
        compiled().fit(batches(), steps_per_epoch=1, callbacks=[resume], verbose=0)
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    with pytest.raises(ValueError, match="has no variables yet"):
        resume.restore(unbuilt, [resume])
    train(tmp_path, callbacks=[], epochs=1)
    model, resume = compiled(), Resume(tmp_path / "checkpoints")
    resume.restore(model, [resume])
    with pytest.raises(ValueError, match="pass initial_epoch=position.epoch"):
        model.fit(batches(), steps_per_epoch=1, callbacks=[resume], verbose=0)


def test_bfloat16_variables_come_back(tmp_path):
    def model():
        keras.utils.set_random_seed(1)
        layers = [keras.Input((6,)), keras.layers.Dense(2, dtype="bfloat16")]
        model = keras.Sequential([*layers, keras.layers.Reshape((1, 2), dtype="bfloat16")])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, jit_compile=False)
        return model

    first = train(tmp_path, model=model(), callbacks=[], epochs=1)
    again = model()
    resume = Resume(tmp_path / "checkpoints")
    resume.restore(again, [resume])
    assert first["weights"][0].dtype.name == "bfloat16"
    assert same([v.numpy() for v in again.variables], first["weights"])


def test_checkpoints_by_time(tmp_path, monkeypatch):
    """A clock that goes on by half a minute whenever it is read: every second batch is saved."""
    clock = itertools.count(step=30)
    monkeypatch.setattr(callback, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    saved = []
    write = Snapshots.write
    monkeypatch.setattr(
        Snapshots, "write", lambda self, step, *rest: (saved.append(step), write(self, step, *rest))
    )
    train(tmp_path, minutes=1, epochs=1, callbacks=[])
    assert saved == [2, 4, STEPS]
    with pytest.raises(ValueError, match="minutes=0: expected.*0"):
        Resume(tmp_path / "checkpoints", minutes=0)
