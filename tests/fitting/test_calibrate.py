"""`calibrate` and `abstain_below` in `fit`: what the pipeline gets, and when it is refused."""

import keras
import numpy as np
import pytest
import tiny
from test_every_task import DATA, LABELS, TEXTS, TRAINERS, bag_of_words, fresh

import keras_transformers as kt
from keras_transformers.evaluation import best_temperature, best_thresholds

OPTIONS = {"epochs": 1, "batch_size": 8, "learning_rate": 0.02, "seed": 3}
CALIBRATED = [task for task, trainer in TRAINERS.items() if trainer.calibrates]
QUICK = {"classification", "multi_label_classification"}
# A quarter of the labels is wrong, so that no answer deserves to be sure.
NOISY = [1 - label if i % 4 == 0 else label for i, label in enumerate(LABELS)]


def noisy(task):
    """Data whose answers cannot all be right."""
    rows = DATA[task][0]
    if task == "multi_label_classification":
        return TEXTS, [["joy"] if label else ["anger"] for label in NOISY]
    if task == "tagging":
        words, tags = rows
        return words, [row if i % 4 else ["B-X"] * len(row) for i, row in enumerate(tags)]
    if task == "multiple_choice":
        return [row | {"label": label} for row, label in zip(rows, NOISY, strict=True)]
    return (*rows[:-1], NOISY)


def test_the_tasks_with_probabilities_of_labels():
    assert set(CALIBRATED) == {
        "classification",
        "image_classification",
        "multi_label_classification",
        "multiple_choice",
        "next_sentence",
        "tagging",
    }


@pytest.mark.one_case
@pytest.mark.parametrize(
    "task", [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow) for x in CALIBRATED]
)
def test_the_temperature_is_the_best_on_the_validation_data(task, capsys):
    pipeline, data = bag_of_words(task) if task in QUICK else fresh(task), noisy(task)
    tiny.lively(pipeline.model)  # whose answers are sure
    kt.fit(pipeline, data, validation=data, calibrate=True, abstain_below=0.6, **OPTIONS)
    temperature = pipeline.temperature
    assert temperature != 1.0
    assert pipeline.abstain_below == 0.6
    assert f"temperature {temperature:.4f}" in capsys.readouterr().out
    after = kt.evaluate(pipeline, data).report.figures
    assert 0 <= after["coverage"] <= 1
    if "log_loss" not in after:
        return
    for other in (1.0, temperature * 1.2, temperature / 1.2):
        pipeline.temperature = other
        figures = kt.evaluate(pipeline, data).report.figures
        assert figures["log_loss"] > after["log_loss"]
        for name in ("accuracy", "mean_average_precision"):  # which depend on the order alone
            assert figures.get(name) == after.get(name)


def test_thresholds_are_chosen_on_calibrated_probabilities():
    data = noisy("multi_label_classification")
    pipeline = bag_of_words("multi_label_classification")
    kt.fit(pipeline, data, validation=data, calibrate=True, quiet=True, **OPTIONS)
    shares = [answer.probabilities for answer in pipeline(data[0])]
    has = [[label in row for label in pipeline.labels] for row in data[1]]
    assert pipeline.thresholds == pytest.approx(best_thresholds(shares, np.array(has)), abs=1e-5)


@pytest.mark.slow
def test_the_weights_are_those_without_it_and_another_training_takes_it_back():
    data = noisy("classification")
    plain, calibrated = bag_of_words(), bag_of_words()
    kt.fit(plain, data, validation=data, quiet=True, **OPTIONS)
    kt.fit(calibrated, data, validation=data, quiet=True, calibrate=True, **OPTIONS)
    pairs = zip(plain.model.get_weights(), calibrated.model.get_weights(), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)
    assert (plain.temperature, plain.abstain_below) == (1.0, None)
    logits = plain.run_model(plain.encode(np.array(data[0], object)))["logits"]
    assert calibrated.temperature == pytest.approx(best_temperature(logits, data[1]), rel=1e-4)
    kt.fit(calibrated, data, validation=data, quiet=True, **OPTIONS)
    assert calibrated.temperature == 1.0


class Stops(keras.callbacks.Callback):
    """Raises in an epoch, as a killed process."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_temperature(tmp_path):
    data = noisy("classification")
    options = OPTIONS | {"epochs": 2, "validation": data, "quiet": True}
    whole, halves = bag_of_words(), bag_of_words()
    kt.fit(whole, data, folder=tmp_path / "whole", calibrate=True, **options)
    with pytest.raises(KeyboardInterrupt):
        kt.fit(halves, data, folder=tmp_path / "half", callbacks=Stops(), **options)
    halves = bag_of_words()
    # What changes no weight may be chosen later.
    kt.fit(halves, data, folder=tmp_path / "half", calibrate=True, **options)
    assert halves.temperature == whole.temperature
    assert halves(TEXTS[:3]) == whole(TEXTS[:3])


@pytest.mark.parametrize(
    ("task", "options", "error", "parts"),
    [
        ("classification", {"calibrate": True}, ValueError, ["calibrate=True", "validation="]),
        ("regression", {"calibrate": True}, TypeError, ["calibrate=True", "regression", "leave"]),
        ("embedding", {"abstain_below": 0.5}, TypeError, ["abstain_below=0.5", "embedding"]),
        ("classification", {"abstain_below": 1.5}, ValueError, ["abstain_below=1.5", "0 to 1"]),
        ("classification", {"temperature_scaling": True}, TypeError, ["calibrate=True"]),
        ("classification", {"confidence_threshold": 0.5}, TypeError, ["abstain_below="]),
    ],
)
def test_options_that_do_not_fit_are_refused_with_a_remedy(task, options, error, parts):
    with pytest.raises(error) as raised:
        kt.fit(fresh(task), DATA[task][0], quiet=True, **options)
    assert all(part in str(raised.value) for part in parts), raised.value


def test_without_validation_only_abstain_below_is_set():
    pipeline = bag_of_words()
    kt.fit(pipeline, (TEXTS, LABELS), abstain_below=0.9, quiet=True, **OPTIONS)
    assert (pipeline.temperature, pipeline.abstain_below) == (1.0, 0.9)
