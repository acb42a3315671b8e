"""What a call of any pipeline takes and returns."""

import subprocess
import sys

import numpy as np
import pytest
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
    with pytest.raises(ValueError, match=f"TextClassifier takes text, not {count} arguments"):
        classify(*["a"] * count)


def test_pairs_that_are_none(score):
    with pytest.raises(ValueError, match="TextRegressor takes text, text_b, not 1 arguments"):
        score("a")
    with pytest.raises(ValueError, match=r"as many text as text_b, not {'text': 2, 'text_b': 1}"):
        score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="text_b must be a list of strings, not 'c'"):
        score(["a"], "c")


@pytest.mark.parametrize("texts", [3, None, [3], ["a", None], [["a"]]])
def test_what_is_not_a_string(classify, texts):
    with pytest.raises(ValueError, match="text must be a list of strings, not "):
        classify(texts)


def test_public_names_are_found_without_loading_tensorflow():
    program = (
        "import sys, keras_transformers as kt;"
        "assert {'TextClassifier', 'MaskFiller', 'classification'} <= {*dir(kt.pipelines)};"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'TextClassifyer'"):
        _ = room.TextClassifyer
