"""Figures in the logs: gradient norm, rates, utilisation; in TensorBoard and as JSON."""

import json
import logging
import math
import subprocess
import sys

import keras
import numpy as np
import pytest
from checks import says

from keras_transformers.runs import telemetry
from keras_transformers.runs.callbacks import standard_callbacks, update_costs
from keras_transformers.runs.options import Logging
from keras_transformers.runs.telemetry import GradientNorm, JsonLines, Telemetry, TensorBoard
from keras_transformers.training import optimizers
from keras_transformers.training.schedules import WarmupLinearDecay

FILES = {"last": "last.weights.h5", "best": "best.weights.h5", "monitor": "val_score"}


@pytest.fixture
def clock(monkeypatch):
    """A clock that only a test advances."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(telemetry, "monotonic", lambda: Clock.now)
    return Clock


class Passing(keras.callbacks.Callback):
    """A batch takes 0.5 seconds, the first one 60, and the time between epochs is 30."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.duration = 60.0

    def on_train_batch_begin(self, batch, logs=None):
        self.clock.now += self.duration
        self.duration = 0.5

    def on_test_begin(self, logs=None):
        self.clock.now += 30.0


def rows(count=12):
    random = np.random.default_rng(0)
    return random.normal(size=(count, 3)).astype("float32"), np.ones((count, 1), "float32")


def make_model(optimizer="sgd"):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def norms_by_hand(model, x, y, learning_rate):
    """Returns the norms of the full gradient of "mse" along a descent in float64."""
    kernel, bias = (np.asarray(w, "float64") for w in model.get_weights())
    norms = []
    for features, targets in zip(x, y, strict=True):
        error = features @ kernel + bias - targets
        gradients = [2 * features.T @ error / len(features), 2 * error.mean(0)]
        norms.append(math.sqrt(sum(np.square(g).sum() for g in gradients)))
        clip = min(1.0, 0.01 / norms[-1])
        kernel, bias = (
            kernel - learning_rate * clip * gradients[0],
            bias - learning_rate * clip * gradients[1],
        )
    return norms


def test_the_gradient_norm_is_that_before_the_clip():
    model = make_model(keras.optimizers.SGD(0.5, global_clipnorm=0.01))
    x, y = rows()
    expected = norms_by_hand(model, x.reshape(3, 4, 3), y.reshape(3, 4, 1), 0.5)
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["gradient_norm"])
    )
    history = model.fit(
        x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[Telemetry(every=1), look]
    ).history
    np.testing.assert_allclose(seen, expected, rtol=1e-5)
    assert history["gradient_norm"] == seen[-1:]
    assert min(seen) > 0.01


def test_a_model_that_was_trained_before_is_watched_too():
    model = make_model(optimizers.adamw(0.1))
    x, y = rows()
    model.fit(x, y, verbose=0)
    history = model.fit(x, y, verbose=0, callbacks=[Telemetry()]).history
    assert history["gradient_norm"][0] > 0
    clip = model.optimizer._clip_gradients
    model.fit(x, y, verbose=0, callbacks=[Telemetry()])
    assert model.optimizer._clip_gradients is clip  # not wrapped twice


def test_sparse_gradients_have_no_norm():
    model = keras.Sequential(
        [keras.Input((2,), dtype="int32"), keras.layers.Embedding(5, 2), keras.layers.Flatten()]
    )
    model.compile("sgd", "mse", jit_compile=False)
    history = model.fit(
        np.ones((4, 2)), np.ones((4, 4)), verbose=0, callbacks=[Telemetry()]
    ).history
    assert set(history) == {"loss", "learning_rate"}


def test_the_loss_scale_of_float16_is_reported():
    model = make_model(keras.optimizers.LossScaleOptimizer(optimizers.adam(0.1), initial_scale=8.0))
    x, y = rows()
    history = model.fit(x, y, verbose=0, callbacks=[Telemetry()]).history
    assert history["loss_scale"] == [8.0]
    assert history["gradient_norm"][0] == pytest.approx(
        norms_by_hand(make_model(), x[None], y[None], 0.0)[0], rel=1e-4
    )  # of the gradient itself, not of 8 times the gradient


def test_rates_leave_out_the_first_step_and_validation(clock, caplog):
    model = make_model(optimizers.adamw(WarmupLinearDecay(1.0, warmup_steps=1, total_steps=10)))
    x, y = rows(16)
    told = Telemetry(every=2, tokens_per_step=100, flops_per_step=1e9, peak_flops=4e9)
    seen = {}
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.update({batch: dict(logs)})
    )
    with caplog.at_level(logging.INFO, "keras_transformers"):
        history = model.fit(
            x,
            y,
            batch_size=4,
            epochs=2,
            validation_data=(x, y),
            verbose=0,
            callbacks=[Passing(clock), told, look],
        ).history
    # 2 steps a second.
    assert history["tokens_per_second"] == pytest.approx([200.0, 200.0])
    assert history["mfu"] == pytest.approx([0.5, 0.5])
    assert history["learning_rate"] == pytest.approx([0.6, 0.2], rel=1e-5)
    assert [batch for batch, logs in seen.items() if "mfu" in logs] == [1, 3]
    assert says(caplog.text, "mfu: 1e+09 FLOPs ... 1 x 4e+09 FLOP/s")


def test_without_a_peak_there_is_no_utilisation(caplog):
    x, y = rows()
    history = (
        make_model()
        .fit(x, y, verbose=0, callbacks=[Telemetry(flops_per_step=1e9, tokens_per_step=5)])
        .history
    )
    assert "mfu" not in history
    with caplog.at_level(logging.INFO, "keras_transformers"):
        make_model().fit(x, y, verbose=0, callbacks=[Telemetry(peak_flops=1e12)])
    assert says(caplog.text, "no mfu ... not counted")
    with pytest.raises(ValueError, match="peak_flops=-1"):
        Telemetry(peak_flops=-1)


def test_several_steps_an_execution_count_one_by_one(clock):
    model = make_model()
    model.compile("sgd", "mse", jit_compile=False, steps_per_execution=3)
    x, y = rows(24)
    history = model.fit(
        x,
        y,
        batch_size=4,
        verbose=0,
        callbacks=[Passing(clock), Telemetry(every=4, tokens_per_step=10)],
    ).history
    assert history["tokens_per_second"] == pytest.approx([10 * 3 / 0.5])


def test_json_lines(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    x, y = rows(16)
    model = make_model()
    for epochs in (1, 2):  # a resumed run appends to the file
        callbacks = [Telemetry(every=2), JsonLines(path, every=2, facts={"run": "a"})]
        model.fit(
            x,
            y,
            batch_size=4,
            epochs=epochs,
            initial_epoch=epochs - 1,
            verbose=0,
            callbacks=callbacks,
        )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    places = [(line["event"], line.get("epoch"), line.get("step")) for line in lines]
    assert places[:5] == [
        ("begin", None, None), ("step", 1, 2), ("step", 1, 4), ("epoch", 1, 4), ("end", 1, 4),
    ]  # fmt: skip
    assert places[6:8] == [("step", 2, 6), ("step", 2, 8)]
    assert lines[0]["run"] == "a"
    assert lines[0]["parameters"] == 4
    assert {"loss", "gradient_norm", "learning_rate", "time"} <= lines[1].keys()
    done = JsonLines(tmp_path / "done.jsonl")
    model.fit(x, y, epochs=2, initial_epoch=2, verbose=0, callbacks=[done])
    assert '"event": "end", "epoch": 0' in (tmp_path / "done.jsonl").read_text()
    model.fit(np.full_like(x, np.nan), y, verbose=0, callbacks=[JsonLines("stdout")])
    last = [json.loads(line) for line in capsys.readouterr().out.splitlines()][-1]
    assert last["loss"] is None
    with pytest.raises(FileNotFoundError):
        JsonLines(tmp_path / "missing" / "log.jsonl")


def test_curves_go_on_where_they_stopped(tmp_path):
    import tensorflow as tf

    model = make_model()
    x, y = rows(16)
    for epoch in (0, 1):
        board = TensorBoard(str(tmp_path), update_freq=1)
        place = {"initial_epoch": epoch, "epochs": epoch + 1}
        model.fit(x, y, batch_size=4, verbose=0, callbacks=[board], **place)
    steps = [
        event.step
        for path in sorted((tmp_path / "train").glob("events*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        if any(value.tag == "batch_loss" for value in event.summary.value)
    ]
    assert steps == list(range(1, 9))


def test_a_run_writes_its_figures_everywhere(tmp_path, monkeypatch):
    log = Logging(quiet=True, log_json=str(tmp_path / "log.jsonl"), log_every=2)
    callbacks = standard_callbacks(tmp_path, log, **FILES)
    update_costs(callbacks, tokens_per_step=7, flops_per_step=1)
    score = keras.callbacks.LambdaCallback(on_epoch_end=lambda e, logs: logs.update(val_score=1.0))
    x, y = rows(16)
    make_model().fit(x, y, batch_size=4, callbacks=[score, *callbacks])
    events = next((tmp_path / "tensorboard" / "train").glob("events*")).read_bytes()
    for name in ("epoch_gradient_norm", "batch_gradient_norm", "epoch_tokens_per_second"):
        assert name.encode() in events
    assert (tmp_path / FILES["best"]).is_file()
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 5
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    task = {"type": "worker", "index": 1}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    others = standard_callbacks(tmp_path, log, **FILES)  # on another worker
    assert not any(isinstance(c, keras.callbacks.TensorBoard | JsonLines) for c in others)


def test_a_profile_is_written(tmp_path):
    log = Logging(quiet=True, profile=True)
    callbacks = standard_callbacks(tmp_path, log, **(FILES | {"monitor": "loss"}))
    x, y = rows(16)
    make_model().fit(x, y, batch_size=1, callbacks=callbacks)
    (profile,) = (tmp_path / "tensorboard").rglob("*.xplane.pb")
    assert profile.stat().st_size > 1000


def test_the_figures_cost_no_wait(monkeypatch):
    """The variable is read only when figures are due."""
    reads = []
    value = GradientNorm.value
    monkeypatch.setattr(GradientNorm, "value", lambda norm: reads.append(norm) or value(norm))
    x, y = rows(24)
    make_model().fit(x, y, batch_size=2, verbose=0, callbacks=[Telemetry(every=5)])
    assert len(reads) == 2 + 1  # two of 12 steps, and the end of the epoch


REPLICAS = """
import sys, keras, numpy as np, tensorflow as tf
path = sys.argv[1]
from keras_transformers.training.distributed import prepare
from keras_transformers.runs.guardrails import NonFiniteLossError, StopOnNonFiniteLoss
from keras_transformers.runs.telemetry import JsonLines, Telemetry

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
random = np.random.default_rng(0)
x, y = random.normal(size=(20, 3)).astype("float32"), np.ones((20, 1), "float32")

def run(strategy, x, *callbacks, prepared=True):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        inputs = keras.Input((3,), name="x")
        model = keras.Model({"x": inputs}, {"y": keras.layers.Dense(1)(inputs)})
        optimizer = keras.optimizers.SGD(0.5, global_clipnorm=0.01)
        model.compile(optimizer, {"y": keras.losses.MeanSquaredError()}, jit_compile=False)
    if prepared:
        prepare(model)
    norms = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: norms.append(logs.get("gradient_norm"))
    )
    batches = tf.data.Dataset.from_tensor_slices(({"x": x}, {"y": y})).batch(8)
    written = [Telemetry(every=1), *callbacks, JsonLines(path, every=1), look]
    model.fit(batches, verbose=0, callbacks=written)
    return norms

two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
one = tf.distribute.get_strategy()
np.testing.assert_allclose(run(two, x), run(one, x), rtol=1e-5)
print("norms")
print(run(two, x, prepared=False))
x[15] = np.nan  # a row of the second replica
try:
    run(two, x, StopOnNonFiniteLoss())
except NonFiniteLossError as error:
    print(error)
"""


@pytest.mark.slow
def test_on_two_replicas(tmp_path):
    path = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", REPLICAS, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    norms, not_prepared, error = done.stdout.splitlines()
    assert norms == "norms"
    assert not_prepared == "[None, None, None]"  # a single replica's norm would be wrong
    assert says(error, "nan at step 2 (batch 2 of epoch 1)")
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()[1:4]]
    assert steps == [1, 2, 3]
