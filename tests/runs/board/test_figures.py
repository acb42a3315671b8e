"""Figures about a run never stop it: what fails is left out, and one warning says so."""

import dataclasses
import json
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import says

from keras_transformers import runs
from keras_transformers.data.batching import LengthBatches
from keras_transformers.data.text import Examples, TextBatches
from keras_transformers.runs.board import epochs, final
from keras_transformers.runs.options import Logging
from keras_transformers.runs.telemetry import JsonLines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(runs.Options):
    name: str = "task"
    epochs: int = 2
    quiet: bool = True


class Rows(LengthBatches):
    """Eight rows of three places, four wide, in batches of four."""

    def __init__(self):
        super().__init__(np.full(8, 3), batch_size=4, shuffle=True, seed=0)

    def batch(self, indices):
        x = tf.cast(tf.range(12) % 5, tf.float32) * tf.cast(indices[:, None], tf.float32)
        return {"x": tf.reshape(x, (-1, 3, 4))}, {"y": tf.one_hot(indices % 2, 2)}

    def of(self, examples):
        return Rows()


@keras.saving.register_keras_serializable("tests")
class OwnMatrix(keras.layers.Layer):
    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], input_shape[-1]), name="kernel")

    def call(self, inputs):
        return keras.ops.matmul(inputs, self.kernel)


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def model_with(layer, *, metric=None):
    inputs = keras.Input((3, 4), name="x")
    hidden = layer(inputs, inputs) if "Attention" in type(layer).__name__ else layer(inputs)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model({"x": inputs}, {"y": keras.layers.Dense(2, name="y")(hidden)})
    model.compile("sgd", {"y": "mse"}, metrics={"y": [metric] if metric else []}, jit_compile=False)
    return model


def train(runs_dir, model, *, phases=((0, 1), (1, 2)), flops_rules=None, **options):
    """Trains in two phases; returns the facts and the last line of the JSON lines, and the run."""
    run = runs.Run(Task(runs_dir=runs_dir, log_json=str(runs_dir / "log.jsonl"), **options))
    batches = Rows()
    for phase in phases:
        epochs_of_phase = range(*phase)
        arguments = run.prepare(model, batches, epochs=epochs_of_phase, flops_rules=flops_rules)
        model.fit(**arguments)
    run.finish(None, {"dev_score": 0.5})
    lines = [json.loads(line) for line in (runs_dir / "log.jsonl").read_text().splitlines()]
    return lines[0], lines[-1], run


@pytest.mark.parametrize("peak", [None, 1e12])
def test_a_layer_without_a_rule_trains_without_flops(peak, tmp_path, caplog):
    model = model_with(OwnMatrix(name="own"))
    facts, end, _ = train(tmp_path, model, peak_flops=peak)
    assert facts["tokens_per_step"] == 12
    assert "flops_per_step" not in facts
    assert "mfu" not in end
    (said,) = warnings_of(caplog)
    assert says(said, "FLOPs ... ValueError: no rule counts")
    assert "'own', a OwnMatrix" in said
    assert "flops_rules={TheLayer:" in said


def test_a_rule_for_it_counts(tmp_path, caplog):
    rules = {OwnMatrix: lambda layer, inputs: 1000}
    facts, _, run = train(tmp_path, model_with(OwnMatrix()), peak_flops=1e12, flops_rules=rules)
    assert facts["flops_per_step"] == 4 * 3 * (1000 + 2 * 4 * 2)  # rows; forward and backward
    assert run.epochs[-1]["mfu"] > 0
    assert not warnings_of(caplog)


def test_a_rule_that_fails_is_no_reason_to_stop(tmp_path, caplog):
    def wrong(layer, inputs):
        raise KeyError("shape")

    facts, _, run = train(
        tmp_path, model_with(OwnMatrix()), peak_flops=1.0, flops_rules={OwnMatrix: wrong}
    )
    assert "flops_per_step" not in facts
    assert "KeyError: 'shape'" in caplog.text
    assert len(run.epochs) == 2


def test_nothing_is_counted_that_nothing_shows(tmp_path, caplog):
    run = runs.Run(Task(runs_dir=tmp_path))
    model = model_with(OwnMatrix())
    model.fit(**run.prepare(model, Rows()))
    assert not warnings_of(caplog)


def test_attention_of_keras_is_counted(tmp_path, caplog):
    layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=5)
    facts, _, _ = train(tmp_path, model_with(layer), peak_flops=1e12)
    projections, middle = 4 * 2 * 3 * 4 * 10, 2 * 2 * 3 * 3 * 10
    assert facts["flops_per_step"] == 4 * 3 * (projections + middle + 2 * 4 * 2)
    assert not warnings_of(caplog)


def test_a_metric_of_several_numbers_is_reported_where_it_can_be(tmp_path):
    metric = keras.metrics.F1Score(average=None, name="f1")
    _, end, run = train(tmp_path, model_with(OwnMatrix(), metric=metric), quiet=False)
    assert len(end["f1"]) == 2
    assert len(run.epochs[0]["f1"]) == 2


def test_numbers_of_numpy_are_written_as_json(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = JsonLines(path, facts={"a": np.float32(0.5), "b": np.arange(2)})
    lines.set_model(model_with(OwnMatrix()))
    lines.on_train_begin()
    found = json.loads(path.read_text())
    assert (found["a"], found["b"]) == (0.5, [0, 1])


def test_samples_that_fail_are_left_out_once(tmp_path, caplog):
    classify = tiny.pipeline("classification")
    examples = Examples(["a good film", "bad"], None, [classify.labels[0], classify.labels[1]])
    callback = epochs.EpochSummaries(tmp_path, Logging(tensorboard_samples=2))
    callback.set_model(classify.model)
    batches = TextBatches(examples, classify, batch_size=2)
    callback.source = batches
    callback.on_train_begin()
    callback._samples = callback._samples._replace(pipeline=None)  # whose answers fail
    for epoch in range(2):
        callback.on_epoch_end(epoch)
    (said,) = warnings_of(caplog)
    assert says(said, "without samples ... AttributeError")


def test_a_finished_run_is_not_lost_with_its_summaries(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    final.write_final(tmp_path / "file" / "final", Task(), {"dev": 0.5}, None, num_embeddings=0)
    assert says(caplog.text, "without its options and scores")
