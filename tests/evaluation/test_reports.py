"""Reports against scikit-learn and seqeval, and their forms."""

import base64
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from checks import says
from rich.cells import cell_len

from keras_transformers.evaluation.reports.calibration import Calibration
from keras_transformers.evaluation.reports.choices import choice_report
from keras_transformers.evaluation.reports.classification import classification_report
from keras_transformers.evaluation.reports.questions import question_report
from keras_transformers.evaluation.reports.regression import regression_report
from keras_transformers.evaluation.reports.search import search_report
from keras_transformers.evaluation.reports.several_labels import multi_label_report
from keras_transformers.evaluation.reports.tagging import tagging_report
from keras_transformers.evaluation.reports.translation import translation_report

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "entity_scores.json").read_text("utf-8")
)
LABELS = [
    *("billing", "account", "api", "shipping", "refund", "login", "security"),
    *("feature request", "cancellation", "hardware", "feedback"),
    "a name of a class that is too long for any table in any terminal, and then some",
]
SHARES = np.array([28, 18, 12, 9, 8, 7, 5, 4, 3, 3, 2, 1]) / 100


def tickets(seed=0, count=395):
    """Uneven classes and their texts, which no column has room for."""
    random = np.random.default_rng(seed)
    references = random.choice(len(LABELS), count, p=SHARES)
    texts = [f"Ticket {i}: [bold]<b>東京</b>[/bold] :smile:\n{'why ' * 50}" for i in range(count)]
    return random, references, texts


def collapsed():
    """The report on a model that answers "billing" for every ticket."""
    random, references, texts = tickets()
    probabilities = 0.2 * random.dirichlet(np.ones(len(LABELS)), len(texts))
    probabilities[:, 0] += 0.8
    return classification_report(probabilities, references, LABELS, texts=texts)


def learned(seed=0):
    random, references, texts = tickets(seed)
    probabilities = random.dirichlet(np.ones(len(LABELS)), len(texts))
    probabilities[np.arange(len(texts)), references] += 0.3 * random.random(len(texts))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    report = classification_report(probabilities, references, LABELS, texts=texts)
    return report, probabilities.argmax(axis=1), references


def rows(report, table):
    return report.tables[table].rows


def test_classes_that_are_never_predicted_come_first():
    report = collapsed()
    assert says(
        report.findings[0], 'All 395 ... "billing" ... 11 of 12 ... never predicted ... account'
    )
    assert says(
        report.findings[1], "Accuracy ... not above ... billing ... balanced accuracy 0.0833"
    )
    head = str(report).splitlines()[:2]
    assert says(" ".join(head), '395 examples, 12 classes ... All 395 answers are "billing"')
    assert report.figures["balanced_accuracy"] == pytest.approx(1 / 12)
    assert [row[1:4] for row in rows(report, "classes")[1:12]] == [(0.0, 0.0, 0.0)] * 11


@pytest.mark.parametrize("seed", range(3))
def test_classification_as_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    report, guesses, references = learned(seed)
    expected = metrics.classification_report(
        references, guesses, target_names=LABELS, output_dict=True, zero_division=0
    )
    found = {row[0].replace("mean", "avg"): row[1:5] for row in rows(report, "classes")}
    for name, row in found.items():
        assert row == pytest.approx(tuple(expected[name].values()), abs=1e-12), name
    assert report.figures["accuracy"] == pytest.approx(expected["accuracy"])
    balanced = metrics.balanced_accuracy_score(references, guesses)
    assert report.figures["balanced_accuracy"] == pytest.approx(balanced)
    matrix = metrics.confusion_matrix(references, guesses, labels=range(len(LABELS)))
    assert [row[1:] for row in rows(report, "confusion")] == list(map(tuple, matrix.tolist()))
    for average in ("macro", "weighted"):
        for name in ("precision", "recall", "f1"):
            figure = getattr(metrics, f"{name}_score")(
                references, guesses, average=average, zero_division=0
            )
            assert report.figures[f"{average}_{name}"] == pytest.approx(figure)


def test_classes_without_examples_do_not_count():
    """As scikit-learn, whose means are over the classes in the data."""
    report = classification_report(np.eye(4)[[0, 0, 1]], [0, 1, 1], ["a", "b", "c", "d"])
    assert report.figures["balanced_accuracy"] == pytest.approx((1 + 0.5) / 2)
    assert report.figures["macro_recall"] == pytest.approx((1 + 0.5) / 2)
    assert any(says(finding, "No example ... 2 classes ... c, d") for finding in report.findings)


def test_the_most_confident_mistakes_have_their_texts():
    report, guesses, references = learned()
    mistakes = rows(report, "mistakes")
    assert [row[3] for row in mistakes] == sorted((row[3] for row in mistakes), reverse=True)
    for row, expected, predicted, _, text in mistakes:
        assert (expected, predicted) == (LABELS[references[row]], LABELS[guesses[row]])
        assert expected != predicted
        assert text.startswith(f"Ticket {row}: ")
        assert "\n" not in text


def test_calibration_error():
    """Guo et al. 2017, equation 3, by hand: bins (0.5, 0.6] and (0.8, 0.9]."""
    confidences = np.array([0.55, 0.6, 0.85, 0.85, 0.9])
    is_right = np.array([True, False, True, False, True])
    calibration = Calibration(confidences, is_right, num_bins=10)
    expected = 2 / 5 * abs(0.575 - 0.5) + 3 / 5 * abs((0.85 + 0.85 + 0.9) / 3 - 2 / 3)
    assert calibration.error == pytest.approx(expected)
    assert [row[1] for row in calibration.table().rows] == [2, 3]
    assert Calibration(np.ones(4), np.ones(4, bool)).error == 0


def test_answers_that_are_too_sure_are_said_to_be():
    assert any(says(finding, "too high ... calibration error") for finding in collapsed().findings)
    sure = classification_report([[0.51, 0.49]] * 9, [0] * 9, ["a", "b"])
    assert any(says(finding, "too low ... 0.51") for finding in sure.findings)


def test_probabilities_that_are_not_numbers_are_counted():
    scores = np.full((3, 2), 0.5)
    scores[1] = np.nan
    report = classification_report(scores, [0, 1, 1], ["a", "b"])
    assert any(says(finding, "1 example ... not numbers") for finding in report.findings)
    json.loads(report.to_json(), parse_constant=lambda name: pytest.fail(name))


# Forms.


@pytest.mark.parametrize("count", [2, 12, 77])
def test_a_report_fits_a_terminal(count):
    random = np.random.default_rng(0)
    labels = [f"class {i} 東京" * (1 + 3 * (i == 1)) for i in range(count)]
    probabilities = random.dirichlet(np.ones(count), 300)
    texts = ["東京 is [red]wide[/red] " * 20] * 300
    report = classification_report(
        probabilities, random.integers(0, count, 300), labels, texts=texts
    )
    lines = str(report).splitlines()
    assert max(map(cell_len, lines)) <= 100
    assert sum(line.startswith("class ") for line in lines) >= count
    assert "[red]" in str(report)
    if count > 20:
        assert says(str(report), "Confusion matrix ... to_frame('confusion')")


def test_a_notebook_shows_texts_literally_and_the_pictures():
    page = learned()[0]._repr_html_()
    assert "<b>東京" not in page
    assert "&lt;b&gt;東京" in page
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == 2
    for picture in pictures:
        ElementTree.fromstring(base64.b64decode(picture))


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    """Nor a half of a surrogate pair, which no file can hold, or a picture's XML."""
    labels, texts = ["a\x1b[2J", "b\x00"], ["bad \x1b[31m\udcff", "x"]
    report = classification_report(np.eye(2)[[1, 1]], [0, 1], labels, texts=texts)
    for form in (str(report), report._repr_html_(), report.to_json(), report.svg("confusion")):
        assert not {"\x1b", "\x00", "\udcff"} & set(form)
        form.encode()
    ElementTree.fromstring(report.svg("confusion"))
    report.save(tmp_path)


def test_frames_json_and_files(tmp_path):
    pytest.importorskip("pandas")
    report, *_ = learned()
    frame = report.to_frame()
    assert frame.loc["billing", "count"] == report.tables["classes"].rows[0][4]
    assert list(report.to_frame("mistakes").columns) == [
        *("expected", "predicted", "probability", "text")
    ]
    with pytest.raises(ValueError) as error:
        report.to_frame("clases")
    assert says(str(error.value), "clases ... classes, confusions, mistakes")
    report.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert json.loads((folder / "report.json").read_text("utf-8")) == report.to_dict()
    assert (folder / "report.txt").read_text("utf-8") == f"{report}\n"
    assert {path.name for path in folder.glob("*.svg")} == {
        "report_confusion.svg",
        "report_reliability.svg",
    }


def test_pictures_follow_the_page():
    report, guesses, references = learned()
    for name in report.pictures:
        picture = report.svg(name)
        ElementTree.fromstring(picture)
        assert "prefers-color-scheme: dark" in picture
    cells = re.findall(r">(\d+)</text>", report.svg("confusion"))
    diagonal = int(np.sum((guesses == 0) & (references == 0)))
    assert str(diagonal) in cells
    with pytest.raises(ValueError) as error:
        report.svg("roc")
    assert says(str(error.value), "roc ... confusion, reliability")


# Other tasks.


@pytest.mark.parametrize("seed", range(3))
def test_several_labels_as_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    labels = ["joy", "fear", "awe", "zest", "never"]
    references = (random.random((60, 5)) < [0.5, 0.3, 0.2, 0.1, 0.1]).astype(int)
    probabilities = 0.4 * references + 0.6 * random.random((60, 5))
    probabilities[:, 4] = 0.1
    thresholds = [0.3, 0.4, 0.5, 0.6, 0.7]
    report = multi_label_report(probabilities, references, labels, thresholds=thresholds)
    guesses = probabilities > thresholds
    expected = metrics.classification_report(
        references, guesses, target_names=labels, output_dict=True, zero_division=0
    )
    for name, *row, _ in rows(report, "labels"):
        wanted = tuple(expected[name.replace("mean", "avg")].values())
        assert tuple(row) == pytest.approx(wanted, abs=1e-12), name
    assert report.figures["exact_match"] == metrics.accuracy_score(references, guesses)
    assert says(report.findings[0], "1 of 5 labels ... never predicted ... never (")


def test_misses_that_occur_together():
    references = [[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]
    probabilities = [[0.1, 0.2, 0.9], [0.1, 0.2, 0.1], [0.9, 0.1, 0.1], [0.1, 0.1, 0.8]]
    report = multi_label_report(probabilities, references, ["a", "b", "c"])
    assert rows(report, "missed_together") == [("a", "b", 2)]
    assert rows(report, "missed_for") == [("a", "c", 1), ("b", "c", 1)]
    assert rows(report, "mistakes")[0][:3] == (0, "a", "missed")


def test_entities_as_seqeval():
    found = GOLDEN["means"]
    report = tagging_report(
        [case[0].split() for case in found["cases"]], [case[1].split() for case in found["cases"]]
    )
    table = {row[0].replace("mean", "avg"): row[1:5] for row in rows(report, "types")}
    assert table.keys() == found["report"].keys()
    for name, row in found["report"].items():
        assert table[name] == pytest.approx(tuple(row.values()), abs=1e-12), name


def test_confusions_of_types_and_bounds():
    words = [["Ada", "Lovelace", "in", "London"], ["New", "York", "!"], ["no", "one"]]
    expected = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC", "O"], ["O", "O"]]
    predicted = [["B-PER", "O", "O", "B-ORG"], ["O", "O", "O"], ["B-PER", "O"]]
    report = tagging_report(predicted, expected, words=words)
    errors = {row[0]: row[1:] for row in rows(report, "errors")}
    # expected, right, other type, other bounds, both wrong, missed, invented
    assert errors == {
        "LOC": (2, 0, 1, 0, 0, 1, 0),
        "ORG": (0, 0, 0, 0, 0, 0, 0),
        "PER": (1, 0, 0, 1, 0, 0, 1),
    }
    texts = {row[1]: row[4] for row in rows(report, "mistakes")}
    assert texts["other bounds"] == "[{Ada} Lovelace] in London"
    assert texts["missed"] == "[New York] !"
    assert texts["invented"] == "{no} one"
    confusion = {row[0]: row[1:] for row in rows(report, "confusion")}
    assert confusion["LOC"] == (0, 1, 0, 1)  # LOC, ORG, PER, (none)
    assert says(report.findings[0], "1 of 3 types ... never predicted ... LOC (2)")


def test_calibration_of_words():
    """A word of 0.9 is right, one of 0.6 is wrong: (0.1 + 0.6) / 2."""
    answers = [["B-A"], ["O"]], [["B-A"], ["B-A"]]
    report = tagging_report(*answers, probabilities=[[0.9], [0.6]])
    assert report.figures["calibration_error"] == pytest.approx((0.1 + 0.6) / 2)
    assert {"confusion", "reliability"} == set(report.drawings)
    assert "reliability" in report.to_dict()["tables"]
    assert "calibration_error" not in tagging_report(*answers).figures
    with pytest.raises(ValueError, match="1 probabilities for 2 words"):
        tagging_report(*answers, probabilities=[[0.9], []])


def test_an_exact_entity_answers_no_other():
    """Of two expected entities that a prediction overlaps, it is the one it equals."""
    report = tagging_report([["O", "B-A"]], [["B-A", "B-A"]])
    assert rows(report, "errors") == [("A", 2, 1, 0, 0, 0, 1, 0)]


def test_regression_as_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    references, answers = 5 * random.random(200), 5 * random.random(200)
    report = regression_report(answers, references, texts=["x"] * 200)
    for figure, name in {
        "mean_absolute_error": "mean_absolute_error",
        "root_mean_squared_error": "root_mean_squared_error",
        "median_absolute_error": "median_absolute_error",
        "r2": "r2_score",
    }.items():
        wanted = getattr(metrics, name)(references, answers)
        assert report.figures[figure] == pytest.approx(wanted)
    assert [row[1] for row in rows(report, "ranges")] == [40] * 5
    errors = [abs(row[3]) for row in rows(report, "mistakes")]
    assert errors[0] == pytest.approx(np.abs(answers - references).max())


def test_a_regressor_that_answers_the_mean_is_found_out():
    report = regression_report([2.5] * 6, [0.0, 1, 2, 3, 4, 5])
    assert says(report.findings[0], "not below ... the mean")
    assert says(report.findings[1], "vary less ... from 2.5000 to 2.5000")
    one = regression_report([1.0, 2.0], [3.0, 3.0])
    assert np.isnan(one.figures["r2"])
    assert one.to_dict()["figures"]["r2"] is None


def test_questions_by_kind_and_length():
    report = question_report(
        ["the Rhine", "", "Bonn", "nobody"],
        [["Rhine"], ["in the old town of Bonn on a hill"], ["Berlin", "Bonn"], []],
        ["Which river is it?", "Where is it?", "In what town?", "Who lives there?"],
    )
    assert report.figures["exact_match"] == 50
    assert report.figures["empty_answers"] == pytest.approx(1 / 3)
    kinds = {row[0]: row[1:3] for row in rows(report, "kinds")}
    assert kinds == {"which": (1, 100), "where": (1, 0), "what": (1, 100), "who": (1, 0)}
    lengths = {row[0]: row[1] for row in rows(report, "lengths")}
    assert lengths == {"no answer": 1, "1 word": 2, "4 to 7 words": 1}
    assert any(says(finding, "0 of 1 ... without an answer") for finding in report.findings)


def test_queries_that_fail():
    report = search_report(
        [[0.9, 0.5, 0.1], [0.2, 0.9, 0.5]],
        [{0}, {0, 2}],
        ["rain", "sun"],
        [["wet", "dry", "hot"]] * 2,
    )
    assert rows(report, "ranks") == [("1", 1, 0.5), ("2 to 3", 1, 0.5)]
    assert rows(report, "failures") == [(1, 2, "sun", "hot", "dry")]
    assert report.figures["median_rank"] == 1.5
    assert report.figures["recall_at_1"] == 0.5


def test_choices_by_place():
    report = choice_report(
        [[0.9, 0.1, 0.0], [0.8, 0.2], [0.6, 0.4]],
        [0, 1, 1],
        texts=["a", "b", "c"],
        choices=[["x", "y", "z"], ["x", "y"], ["x", "y"]],
    )
    assert [row[1:] for row in rows(report, "places")] == [(1, 3, 1.0), (2, 0, 0.0), (0, 0, None)]
    assert any(says(finding, "Never chosen ... 1") for finding in report.findings)
    assert rows(report, "mistakes")[0] == (1, 0.8, "b", "y", "x")


def test_translations_as_sacrebleu():
    metrics = pytest.importorskip("sacrebleu.metrics")
    sources = ["ein Hund läuft über die Wiese", "ein Mann"]
    references = ["a dog runs over the meadow", "a man"]
    translations = ["a dog runs on the meadow", "ein Mann"]
    report = translation_report(translations, references, sources)
    for name, metric in {"bleu": "BLEU", "chrf": "CHRF", "ter": "TER"}.items():
        wanted = getattr(metrics, metric)().corpus_score(translations, [references]).score
        assert report.figures[name] == pytest.approx(wanted)
    assert rows(report, "mistakes")[0][0] == 1
    assert any(says(finding, "1 of 2 ... copies") for finding in report.findings)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: classification_report([[0.5, 0.5]], [0, 1], ["a", "b"]),
            "(1, 2) ... 2 ref",
        ),
        (lambda: classification_report(np.zeros((0, 2)), [], ["a", "b"]), "at least one"),
        (lambda: classification_report([[0.5, 0.5]], [2], ["a", "b"]), "2 ... 2 labels"),
        (lambda: regression_report([1.0], [1.0, 2.0]), "(1,) ... (2,) ... the same"),
        (lambda: question_report(["a"], [], ["b"]), "1 answers ... 0 lists"),
        (
            lambda: choice_report([[1.0]], [], texts=[], choices=[]),
            "1 prob ... 0 ref",
        ),
    ],
)
def test_columns_that_do_not_match_are_refused(make, parts):
    with pytest.raises(ValueError) as error:
        make()
    assert says(str(error.value), parts)
