"""The temperature of probabilities, against scipy's optimum; and what abstaining costs."""

import numpy as np
import pytest
from scipy import optimize, special
from sklearn import metrics

from keras_transformers.evaluation import at_temperature, best_temperature, log_loss
from keras_transformers.evaluation.reports.calibration import Selection
from keras_transformers.evaluation.reports.choices import choice_report
from keras_transformers.evaluation.reports.classification import classification_report
from keras_transformers.evaluation.reports.several_labels import multi_label_report
from keras_transformers.evaluation.reports.tagging import tagging_report


def answers(scale, *, count=400, classes=5, seed=0):
    """Logits whose softmax is right `scale` times too sure, and what is right."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.5, (count, classes))
    shares = special.softmax(logits, axis=1)
    references = np.array([random.choice(classes, p=row) for row in shares])
    return logits * scale, references


def loss_at(temperature, logits, references):
    return metrics.log_loss(
        references, special.softmax(logits / temperature, axis=1), labels=range(logits.shape[1])
    )


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_temperature_has_the_lowest_log_loss(scale):
    logits, references = answers(scale)
    wanted = optimize.minimize_scalar(
        loss_at, bounds=(0.05, 20), args=(logits, references), method="bounded"
    )
    found = best_temperature(logits, references)
    assert found == pytest.approx(wanted.x, rel=1e-3)
    assert loss_at(found, logits, references) <= wanted.fun + 1e-12
    assert found == pytest.approx(scale, rel=0.15)
    assert found == best_temperature(logits, references)  # exactly
    # What all logits of a row share, and the order of the rows, change nothing but rounding.
    order = np.random.default_rng(1).permutation(len(logits))
    moved = best_temperature(logits[order] + 1e3, references[order])
    assert moved == pytest.approx(found, rel=1e-9)


def test_a_temperature_of_sigmoids_is_that_of_two_classes():
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, 500)
    has = random.random(500) < special.expit(logits)
    rows = np.stack([np.zeros(500), logits * 3], axis=1)
    wanted = optimize.minimize_scalar(
        lambda t: metrics.log_loss(has, special.expit(logits * 3 / t)),
        bounds=(0.05, 20),
        method="bounded",
    ).x
    assert best_temperature(rows, has.astype(int)) == pytest.approx(wanted, rel=1e-3)


def test_rows_may_have_fewer_classes():
    logits, references = answers(2.0, classes=3)
    wider = np.pad(logits, [[0, 0], [0, 4]], constant_values=-np.inf)
    assert best_temperature(wider, references) == best_temperature(logits, references)


@pytest.mark.parametrize(
    ("logits", "references", "num_right"),
    [
        ([[9.0, 0.0], [0.0, 3.0]], [0, 1], 2),  # the surer the better
        ([[9.0, 0.0], [0.0, 3.0]], [1, 0], 0),  # the less sure the better
        ([[1e30, 0.0], [0.0, 1e30], [1e30, 0]], [0, 1, 1], 2),
        ([[0.0, 0.0], [0.0, 0.0]], [0, 1], 2),
    ],
)
def test_without_a_minimum_it_stays_1_and_a_warning_says_so(logits, references, num_right, caplog):
    assert best_temperature(logits, references) == 1.0
    assert f"{num_right} of {len(references)} answers are right" in caplog.text
    assert "more validation data" in caplog.text


def test_one_mistake_is_enough_for_a_minimum():
    logits = np.array([[9.0, 0.0]] * 50)
    references = np.array([0] * 49 + [1])
    assert best_temperature(logits, references) == pytest.approx(9 / np.log(49), rel=1e-9)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_logits_that_say_nothing_leave_the_temperature_at_1(value):
    assert best_temperature(np.full((4, 3), value), [0, 1, 2, 0]) == 1.0
    assert best_temperature(np.zeros((0, 3)), np.zeros(0, int)) == 1.0


def test_rows_that_are_no_numbers_do_not_count():
    logits, references = answers(2.0)
    bad = np.concatenate([logits, np.full((3, 5), np.nan), np.full((2, 5), np.inf)])
    found = best_temperature(bad, np.concatenate([references, np.zeros(5, int)]))
    assert found == best_temperature(logits, references)


def test_shapes_that_do_not_match_are_named():
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3,\)"):
        best_temperature(np.zeros((2, 3)), [0, 1, 2])


def test_probabilities_have_all_that_a_temperature_needs():
    logits, _ = answers(3.0)
    sure = special.softmax(logits, axis=1)
    np.testing.assert_allclose(
        at_temperature(sure, 2.5), special.softmax(logits / 2.5, axis=1), rtol=1e-9
    )
    np.testing.assert_allclose(at_temperature(at_temperature(sure, 2.5), 1 / 2.5), sure, rtol=1e-9)


def test_log_loss_as_scikit_learn():
    logits, references = answers(2.0)
    shares = special.softmax(logits, axis=1)
    of_right = shares[np.arange(len(shares)), references]
    assert log_loss(of_right) == pytest.approx(metrics.log_loss(references, shares), rel=1e-12)
    with_zero = metrics.log_loss([0, 0], [[0, 1], [1, 0]], labels=[0, 1])
    assert log_loss([0.0, 1.0]) == pytest.approx(with_zero)


def test_reports_show_before_and_after():
    logits, references = answers(4.0)
    temperature = best_temperature(logits, references)
    names = list("abcde")
    before = classification_report(special.softmax(logits, axis=1), references, names)
    shares = special.softmax(logits / temperature, axis=1)
    after = classification_report(shares, references, names, temperature=temperature)
    rows = after.to_dict()["tables"]["temperature"]["rows"]
    figures = ("calibration_error", "log_loss")
    assert rows[0][1:] == pytest.approx([before.figures[name] for name in figures])
    assert rows[1][1:] == pytest.approx([after.figures[name] for name in figures])
    assert after.figures["log_loss"] == pytest.approx(metrics.log_loss(references, shares))
    assert after.figures["calibration_error"] < before.figures["calibration_error"] / 3
    assert after.figures["accuracy"] == before.figures["accuracy"]
    assert f"{temperature:.4f}" in " ".join(after.findings)
    assert "temperature" not in before.tables
    assert "coverage" not in before.figures


def test_reports_on_several_labels_and_choices_show_before_and_after():
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (60, 3))
    has = (random.random((60, 3)) < special.expit(logits)).astype(int)
    before = multi_label_report(special.expit(logits * 3), has, list("abc"))
    after = multi_label_report(special.expit(logits), has, list("abc"), temperature=3.0)
    wanted = metrics.log_loss(has.ravel(), special.expit(logits).ravel())
    assert after.figures["log_loss"] == pytest.approx(wanted)
    rows = [after.to_dict()["tables"]["temperature"]["rows"][0]]
    shares = special.softmax(logits, axis=1)
    options = {"texts": ["?"] * 60, "choices": [["x", "y", "z"]] * 60}
    right = [0] * 60
    choices = choice_report(special.softmax(logits * 3, axis=1), right, **options)
    chosen = choice_report(shares, right, temperature=3.0, **options)
    assert chosen.figures["log_loss"] == pytest.approx(
        metrics.log_loss(right, shares, labels=[0, 1, 2])
    )
    rows.append(chosen.to_dict()["tables"]["temperature"]["rows"][0])
    for row, report in zip(rows, (before, choices), strict=True):
        figures = [report.figures[name] for name in ("calibration_error", "log_loss")]
        assert row[1:] == pytest.approx(figures)


def test_abstaining_answers_fewer_and_better():
    """Counted by hand."""
    shares = [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.55, 0.45]]
    report = classification_report(shares, [0, 1, 1, 0], ["no", "yes"], abstain_below=0.65)
    assert report.figures["coverage"] == 0.5
    assert report.figures["selective_accuracy"] == 1.0
    assert report.figures["accuracy"] == 0.75
    assert ["0.65", 0.5, 1.0] in report.to_dict()["tables"]["coverage"]["rows"]
    assert "Abstains from 2 of 4 examples" in " ".join(report.findings)
    nobody = classification_report(shares, [0, 1, 1, 0], ["no", "yes"], abstain_below=1.0)
    assert "nan" not in " ".join(nobody.findings)
    labels = multi_label_report(
        [[0.9, 0.2], [0.6, 0.1], [0.9, 0.9]], [[1, 0], [1, 0], [1, 0]], ["a", "b"],
        abstain_below=0.7,
    )  # fmt: skip
    assert labels.figures["coverage"] == pytest.approx(2 / 3)
    assert labels.figures["selective_exact_match"] == 0.5
    words = tagging_report(
        [["B-X", "O"], ["O"]], [["B-X", "O"], ["B-X"]], probabilities=[[0.9, 0.5], [0.8]],
        abstain_below=0.7,
    )  # fmt: skip
    assert words.figures["coverage"] == pytest.approx(2 / 3)
    assert words.figures["selective_word_accuracy"] == 0.5
    assert words.figures["calibration_error"] == pytest.approx((0.1 + 0.5 + 0.8) / 3)


def test_a_limit_that_no_answer_reaches():
    selection = Selection(np.array([0.5, 0.6]), np.array([True, False]), 1.0)
    assert selection.figures["coverage"] == 0.0
    assert np.isnan(selection.figures["selective_accuracy"])
    assert selection.table.rows[-1] == ("1", 0.0, None)
