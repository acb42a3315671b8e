"""What a call of any pipeline takes and returns."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tiny
from answer_checks import same_answers

from keras_transformers import pipelines as room
from keras_transformers.pipelines.results import Classification, Regression


@pytest.fixture(scope="module")
def classify(pipelines):
    return pipelines("classification")


@pytest.fixture(scope="module")
def score(pipelines):
    return pipelines("regression")


def test_one_string_gives_one_answer_and_many_give_a_list(classify, score):
    one = classify("a good film")
    assert isinstance(one, Classification)
    assert isinstance(score("a film", "good"), Regression)
    for given in (["a good film"], ("a good film",), np.array(["a good film"]), [b"a good film"]):
        assert classify(given) == [one]
    assert classify(text for text in ["a good film"]) == [one]
    assert classify(b"a good film") == one
    assert classify([]) == score([], []) == []


def test_undecodable_bytes_may_come_as_surrogates(classify):
    assert classify("a \udcff film") == classify(b"a \xff film")


def test_rows_of_any_length_keep_their_order(classify):
    texts = ["long " * (i * 7 % 13) + "a film" for i in range(13)]
    answers = classify(texts, batch_size=3)
    assert len({answer.probabilities[0] for answer in answers}) > 5
    same_answers(answers, [classify(text) for text in texts])
    same_answers(answers, classify(texts))


@pytest.mark.parametrize("count", [0, 2, 3])
def test_too_few_or_too_many_texts(classify, count):
    with pytest.raises(ValueError, match=f"TextClassifier.*{count} arguments"):
        classify(*["a"] * count)


def test_pairs_that_are_none(score):
    with pytest.raises(ValueError, match="TextRegressor.*text_b,.*1 arguments"):
        score("a")
    with pytest.raises(ValueError, match=r"as many text as text_b, not {'text': 2, 'text_b': 1}"):
        score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="text_b must be a list of strings, not 'c'"):
        score(["a"], "c")


def test_a_tensor_of_strings_is_a_list_of_strings(classify, pipelines):
    one = classify("a good film")
    assert classify(tf.constant(["a good film", "bad"])) == classify(["a good film", "bad"])
    assert classify([tf.constant("a good film")]) == [one]
    assert classify(tf.constant("a good film")) == one
    choose = pipelines("multiple_choice")
    wanted = choose(["a"], [["good", "bad film"]])
    for choices in (
        tf.constant([["good", "bad film"]]),
        tf.ragged.constant([["good", "bad film"]]),
    ):
        assert choose(tf.constant(["a"]), choices) == wanted


@pytest.mark.parametrize("texts", [3, None, {"a": 1}, np.array("a", object)])
def test_what_is_no_list(classify, texts):
    with pytest.raises(ValueError, match="text must be a list of strings, not "):
        classify(texts)


@pytest.mark.parametrize("place", ["whole", "row", "value"])
def test_texts_nested_thousands_deep_are_named(place, classify):
    texts: object = "a"
    for _ in range(5000):
        texts = [texts]
    texts = {"whole": texts, "row": ["a", texts], "value": {"text": texts}}[place]
    with pytest.raises(ValueError, match=r"text must be a list of strings.*\[\[\.\.\.") as raised:
        classify(texts)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(None, "NoneType"), (float("nan"), "float"), (3, "int"), (["a"], "list"), (True, "bool")],
)
@pytest.mark.parametrize("task", [task for task in tiny.TASKS if "image" not in task])
def test_what_is_not_a_string_is_named_with_its_place(task, wrong, kind):
    run = tiny.pipeline(task)
    *others, name = run.text_names
    ranks = {name: len(spec.shape) for name, spec in run.input_specs().items()}
    good, bad, place = ["a", "b"], ["a", wrong], f"{name}[1]"
    if ranks[name] == 2:
        bad, place = [["a"], ["b", wrong]], f"{name}[1][1]"
    with pytest.raises(ValueError, match=f"^{name} must be a list .*strings") as caught:
        run(*[good for _ in others], bad)
    assert f"but {place} is {wrong!r}, a {kind}: leave it out, or pass" in str(caught.value)


def test_public_names_are_found_without_loading_tensorflow():
    program = (
        "import sys, keras_transformers as kt;"
        "assert {'TextClassifier', 'MaskFiller', 'classification'} <= {*dir(kt.pipelines)};"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'TextClassifyer'"):
        _ = room.TextClassifyer
