"""The figure that decides which epoch is best, and how long to wait for a better one."""

import keras
import numpy as np
import pytest
from test_every_task import DATA, LABELS, TEXTS, bag_of_words, fresh

import keras_transformers as kt
from keras_transformers.runs.monitors import mode_of

OPTIONS = {"batch_size": 8, "quiet": True, "learning_rate": 0.05, "seed": 3}
WRONG = [1 - label for label in LABELS]  # what is learned makes these worse


def named(raised, *parts):
    """Asserts that the message has all of these parts."""
    assert all(part in str(raised.value) for part in parts), raised.value


@pytest.mark.parametrize(
    "monitor",  # the loss, a figure of Keras, one of the report
    [
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("val_loss", "val_accuracy")),
        "val_macro_f1",
    ],
)
def test_the_weights_of_the_best_epoch_by_the_monitor_are_kept(monitor):
    pipeline = bag_of_words()
    held_out = (TEXTS, WRONG)
    history = kt.fit(
        pipeline, (TEXTS, LABELS), validation=held_out, epochs=4, monitor=monitor, **OPTIONS
    ).history
    best = (min if "loss" in monitor else max)(history[monitor])
    measured = kt.evaluate(pipeline, held_out)
    figures = {**measured, **measured.report.figures}
    assert figures[monitor.removeprefix("val_")] == pytest.approx(best, rel=1e-5)
    assert len(history["loss"]) == 4
    assert len(set(history["val_loss"])) == 4


PATIENT = OPTIONS | {"monitor": "val_loss", "patience": 2, "epochs": 8}
PATIENT |= {"validation": (TEXTS, WRONG)}


@pytest.fixture(scope="module")
def patient():
    """A pipeline that was trained until the patience ended, and the history: read only."""
    pipeline = bag_of_words()
    return pipeline, kt.fit(pipeline, (TEXTS, LABELS), **PATIENT).history


def test_patience_stops_after_epochs_without_a_better_one(patient):
    pipeline, history = patient
    history = history["val_loss"]
    best = int(np.argmin(history))
    assert len(history) == best + 1 + 2 < 8
    measured = kt.evaluate(pipeline, (TEXTS, WRONG))["loss"]
    assert measured == pytest.approx(history[best], rel=1e-5)


@pytest.mark.slow
def test_a_training_that_stopped_early_resumes_as_it_was(tmp_path):
    """Epochs that another call adds change nothing: the patience had run out."""
    options = OPTIONS | {"monitor": "val_loss", "patience": 1, "validation": (TEXTS, WRONG)}
    whole = bag_of_words()
    first = kt.fit(whole, (TEXTS, LABELS), folder=tmp_path / "run", epochs=6, **options)
    again = bag_of_words()
    second = kt.fit(again, (TEXTS, LABELS), folder=tmp_path / "run", epochs=6, **options)
    assert first.history["val_loss"] == second.history["val_loss"]
    for one, other in zip(whole.model.get_weights(), again.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


class Stops(keras.callbacks.Callback):
    """Raises in an epoch, as a killed process."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_patience_goes_on_after_a_restart(patient, tmp_path):
    (whole, wanted), halves = patient, bag_of_words()
    with pytest.raises(KeyboardInterrupt):
        kt.fit(halves, (TEXTS, LABELS), folder=tmp_path / "half", callbacks=Stops(), **PATIENT)
    halves = bag_of_words()
    found = kt.fit(halves, (TEXTS, LABELS), folder=tmp_path / "half", **PATIENT)
    assert found.history["val_loss"] == wanted["val_loss"]
    for one, other in zip(whole.model.get_weights(), halves.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["multi_label_classification", "question_answering", "tagging"])
def test_the_loss_of_every_task_can_be_followed(task):
    data = DATA[task][0]
    options = OPTIONS | {"epochs": 2, "monitor": "val_loss"}
    history = kt.fit(fresh(task), data, validation=data, **options).history
    assert len(history["val_loss"]) == 2


def test_a_figure_that_does_not_exist_is_named_with_those_that_do(tmp_path):
    data = (TEXTS, LABELS)
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match="val_f2") as raised:
        kt.fit(bag_of_words(), data, validation=data, monitor="val_f2", folder=folder)
    named(raised, "monitor='val_f2'", "val_accuracy", "val_loss", "val_macro_f1")
    assert not folder.exists()
    stopping = keras.callbacks.EarlyStopping("val_acc", mode="max", patience=1)
    with pytest.raises(ValueError, match="val_acc") as raised:
        kt.fit(bag_of_words(), data, validation=data, callbacks=stopping, quiet=True)
    named(raised, "EarlyStopping(monitor='val_acc')", "val_accuracy")
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=1)
    with pytest.raises(ValueError, match="val_loss") as raised:
        kt.fit(bag_of_words(), data, callbacks=stopping, quiet=True)
    named(raised, "EarlyStopping(monitor='val_loss')", "needs validation data", "loss")


@pytest.mark.parametrize("option", [{"patience": 2}, {"monitor": "val_loss"}])
def test_what_needs_validation_data_says_so(option):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=name) as raised:
        kt.fit(bag_of_words(), (TEXTS, LABELS), **option)
    named(raised, f"{name}={value!r}", "validation=")


def test_two_rules_that_restore_other_weights_disagree_before_the_first_step():
    data = (TEXTS, LABELS)
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    with pytest.raises(ValueError, match="EarlyStopping") as raised:
        kt.fit(bag_of_words(), data, validation=data, callbacks=stopping, quiet=True)
    named(raised, "val_loss", "highest val_accuracy", "monitor='val_loss'")
    options = OPTIONS | {"epochs": 2, "monitor": "val_loss"}
    kt.fit(bag_of_words(), data, validation=data, callbacks=stopping, **options)


@pytest.mark.slow
def test_metrics_are_measured_and_can_be_followed():
    data = (TEXTS, LABELS)
    options = OPTIONS | {"epochs": 2, "monitor": "val_surprise"}
    metric = keras.metrics.SparseCategoricalCrossentropy(name="surprise", from_logits=True)
    history = kt.fit(bag_of_words(), data, validation=data, metrics=[metric], **options).history
    assert len(history["surprise"]) == len(history["val_surprise"]) == 2
    top = keras.metrics.SparseTopKCategoricalAccuracy(k=1, name="top")
    history = kt.fit(
        bag_of_words(), (TEXTS, LABELS), metrics=top, **OPTIONS | {"epochs": 1}
    ).history
    assert history["top"] == history["accuracy"]


@pytest.mark.parametrize(
    ("metrics", "error", "parts"),
    [
        ([keras.metrics.Mean(name="accuracy")], ValueError, ["'accuracy'", "name=..."]),
        ([print], TypeError, ["print", "keras.metrics"]),
        ({"other": []}, ValueError, ["'other'", "logits"]),
    ],
)
def test_wrong_metrics_are_named(metrics, error, parts):
    with pytest.raises(error) as raised:
        kt.fit(bag_of_words(), (TEXTS, LABELS), metrics=metrics, quiet=True)
    named(raised, *parts)


def test_losses_errors_and_what_keras_says_are_lower_is_better():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    metric = keras.metrics.MeanAbsoluteError(name="mae")
    model.compile("sgd", "mse", metrics=[metric], jit_compile=False)
    model.evaluate(np.zeros((2, 1)), np.zeros((2, 1)), verbose=0)
    lowest = ["loss", "val_loss", "val_logits_loss", "val_mean_squared_error", "val_perplexity"]
    assert {mode_of(name, model) for name in [*lowest, "val_mae"]} == {"min"}
    highest = ["val_accuracy", "val_f1", "val_mean_average_precision", "val_log_probability"]
    assert {mode_of(name, model) for name in highest} == {"max"}
