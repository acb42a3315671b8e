import json

import numpy as np
import pytest
import tensorflow as tf
import tiny
from answer_checks import same_answers

import keras_transformers as kt
from keras_transformers.pipelines import ZeroShotClassifier
from keras_transformers.results import ZeroShotLabel

TEXTS = ["a film", "good", "", "very bad"]
LABELS = [["good", "bad films", "!"], ["a film"], ["long", "very long"], []]


@pytest.fixture(scope="module")
def classify():
    return tiny.pipeline("zero_shot_classification")


def logits_of(classify, text, sentence):
    """The logits of one pair."""
    tokens = classify.encode(tf.constant([text]), tf.constant([sentence]))
    return classify.model(tokens)["logits"].numpy()[0]


def expected(classify, text, labels, template="This example is {}.", multi_label=False):
    """What transformers' pipeline computes, one pair after the other."""
    rows = np.array([logits_of(classify, text, template.format(label)) for label in labels])
    if multi_label or len(labels) == 1:
        of_two = np.exp(rows[:, [0, 2]])
        return of_two[:, 1] / of_two.sum(axis=1)
    return np.exp(rows[:, 2]) / np.exp(rows[:, 2]).sum()


def test_the_labels_of_a_text_share_its_probability(classify):
    answers = classify(TEXTS, LABELS)
    assert {type(answer) for answer in answers} == {ZeroShotLabel}
    for text, labels, answer in zip(TEXTS[:3], LABELS, answers, strict=False):
        probabilities = expected(classify, text, labels)
        np.testing.assert_allclose(answer.probabilities, probabilities, atol=1e-5)
        assert answer.label_index == probabilities.argmax()
        assert answer.label == labels[answer.label_index]
    assert sum(answers[0].probabilities) == pytest.approx(1, abs=1e-6)


def test_several_labels_have_their_own_probabilities(classify):
    several = classify.with_options(multi_label=True, hypothesis_template="{}, very {")
    found = several(TEXTS[:3], LABELS[:3])
    for text, labels, answer in zip(TEXTS, LABELS, found, strict=False):
        sentences = [f"{label}, very {{" for label in labels]
        rows = np.array([logits_of(classify, text, sentence) for sentence in sentences])
        np.testing.assert_allclose(
            answer.probabilities, tf.sigmoid(rows[:, 2] - rows[:, 0]), atol=1e-5
        )


def test_rows_have_their_own_number_of_labels(classify):
    together = classify(TEXTS, LABELS)
    alone = [classify(text, labels) for text, labels in zip(TEXTS, LABELS, strict=True)]
    same_answers(alone, together)
    assert [len(answer.probabilities) for answer in together] == [3, 1, 2, 0]
    assert together[3] == ZeroShotLabel("", [], -1)
    assert classify([], []) == []


def test_empty_strings_are_no_labels(classify):
    answer, without = classify("a", ["", "bad", "", "good"]), classify("a", ["bad", "good"])
    assert answer.label == without.label
    np.testing.assert_allclose(answer.probabilities[1::2], without.probabilities, atol=1e-6)
    assert answer.probabilities[::2] == [0.0, 0.0]


def test_entailment_may_be_the_first_class(classify):
    first = classify.with_options(labels=["ENTAILMENT", "neutral", "contradiction"])
    rows = np.array([logits_of(classify, "a film", f"This example is {x}.") for x in ("a", "!")])
    several = first.with_options(multi_label=True)("a film", ["a", "!"])
    np.testing.assert_allclose(
        several.probabilities, tf.sigmoid(rows[:, 0] - rows[:, 2]), atol=1e-5
    )


def test_bad_options_and_requests(classify):
    for options, message in (
        ({"labels": ["sports", "food", "art"]}, "second argument of a call"),
        ({"labels": ["no", "entailment"]}, "2 labels"),
        ({"hypothesis_template": "about it"}, "expected one {} for the label"),
        ({"hypothesis_template": "{} {}"}, "expected one {} for the label"),
    ):
        with pytest.raises(ValueError, match=message):
            classify.with_options(**options)
    with pytest.raises(ValueError, match="a row repeats a label"):
        classify(["a", "b"], [["good"], ["bad", "bad"]])


@pytest.mark.slow
def test_the_request_brings_template_and_kind(classify, tmp_path):
    folder = kt.export(classify, tmp_path / "export")
    call = tf.saved_model.load(str(folder)).signatures["template"]
    request = {
        "text": tf.constant(TEXTS[:2]),
        "labels": tf.constant([["good", "bad"], ["film", ""]]),
        "hypothesis_template": tf.constant(["{} !", "a {}"]),
        "multi_label": tf.constant([True, False]),
    }
    found = call(**request)
    several = expected(classify, TEXTS[0], ["good", "bad"], "{} !", multi_label=True)
    np.testing.assert_allclose(found["probabilities"][0], several, atol=1e-5)
    one = expected(classify, TEXTS[1], ["film"], "a {}")
    np.testing.assert_allclose(found["probabilities"][1], [one[0], 0], atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="needs one {}"):
        call(**request | {"hypothesis_template": tf.constant(["{} !", "a"])})


def test_classifiers_of_other_libraries_serve_it(classify, tmp_path):
    labels = ["contradiction", "neutral", "entailment"]
    trained = kt.pipelines.TextClassifier(classify.model, classify.tokenizer, labels, pair=True)
    kt.save(trained, tmp_path / "nli", format="huggingface")
    loaded = kt.load(tmp_path / "nli", pipeline="zero_shot_classification")
    same_answers([loaded("good", ["bad", "film"])], [classify("good", ["bad", "film"])])
    kt.save(loaded, tmp_path / "again", format="huggingface")
    config = json.loads((tmp_path / "again/config.json").read_text())
    assert config["id2label"] == dict(zip("012", labels, strict=True))
    assert isinstance(
        kt.load(tmp_path / "again"), (ZeroShotClassifier, kt.pipelines.TextClassifier)
    )


@pytest.mark.reference
@pytest.mark.parametrize("entailment", [0, 2])
def test_answers_are_those_of_transformers(classify, tmp_path, entailment):
    transformers = pytest.importorskip("transformers")
    labels = ["contradiction", "neutral", "entailment"]
    labels = labels if entailment else labels[::-1]
    ours = classify.with_options(labels=labels)
    kt.save(ours, tmp_path / "nli", format="huggingface")
    theirs = transformers.pipeline("zero-shot-classification", str(tmp_path / "nli"))
    texts = ["a good film", "two dogs !", "very bad films are long"]
    for several in (False, True):
        for template in ("This example is {}.", "a film, {}"):
            pipe = ours.with_options(multi_label=several, hypothesis_template=template)
            for text in texts:
                for names in (["good", "bad", "dogs"], ["film"]):
                    wanted = theirs(
                        *(text, names), hypothesis_template=template, multi_label=several
                    )
                    found = dict(zip(names, pipe(text, names).probabilities, strict=True))
                    assert found == pytest.approx(
                        dict(zip(wanted["labels"], wanted["scores"], strict=True)), abs=1e-5
                    )
