"""What a call of any pipeline takes and returns."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import other_libraries
import pytest
import tensorflow as tf
import tiny
from answer_checks import same_answers

from keras_transformers import pipelines as room
from keras_transformers.data import Examples, TextBatches
from keras_transformers.results import Classification, Regression


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
    with pytest.raises(ValueError, match="text_b, not {'text': 2, 'text_b': 1}"):
        score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="text_b .*list of strings, not 'c'"):
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
    wanted = r"data\['text'\]" if place == "value" else r"\[\[\.\.\."
    with pytest.raises(ValueError, match=f"text must be a list of strings.*{wanted}") as raised:
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


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_a_table_is_never_a_list_of_its_columns_names(classify, score, kind):
    table = other_libraries.table(kind, {"numpy": ["a"], "text": ["a good film"], "text_b": ["b"]})
    for call in (lambda: classify(table), lambda: score(table), lambda: score(table, ["b"])):
        with pytest.raises(ValueError, match="^text must be a list of strings") as caught:
            call()
        assert "with the columns numpy, text, text_b: pass one of its columns" in str(caught.value)
        assert "such as data['text']" in str(caught.value)
        assert "keras_transformers.predict" in str(caught.value)
    with pytest.raises(ValueError, match=r"^text_b must be .* columns numpy.* data\['text_b'\]"):
        score(["a"], table)
    choose = tiny.pipeline("multiple_choice")
    for choices in (table, [table]):
        with pytest.raises(ValueError, match=r"^choices(\[0\])? must be .* the columns numpy"):
            choose(["a"], choices)
    assert classify(table["text"]) == classify(["a good film"])
    with pytest.raises(ValueError, match="takes text, text_b, not numpy, text, text_b"):
        score.rows(table)  # a mapping of columns is what `rows` takes, and so is a table
    table = other_libraries.table(kind, {"text": ["a good film"], "text_b": ["b"]})
    assert score.rows(table) == score.rows({"text": ["a good film"], "text_b": ["b"]})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"review": ["a good film"]}, r"dict .*review: .*data\['review'\]"),
        ({}, "a dict with the columns : pass one"),
        ({"a good film", "b"}, r"a set: .*sorted\(texts\)"),
        (io.StringIO("a good film\nb\n"), r"a StringIO: .*file.read\(\).splitlines\(\)"),
        (Path("reviews.txt"), "Path: read the file.*keras_transformers.predict"),
        (["a", {"text": "b"}], r"text\[1\] is \{'text': 'b'\}, a dict"),
        (np.array([["a"], ["b"]]), r"text\[0\] is \['a'\], a list"),
    ],
)
def test_what_has_no_rows_of_texts(classify, score, texts, message):
    for call in (lambda: classify(texts), lambda: score(texts, texts)):
        with pytest.raises(ValueError, match=f"^text must be a list of strings.*{message}"):
            call()


def test_lazy_tables():
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"not a LazyFrame: .*collect\(\)"):
        tiny.pipeline("classification")(polars.LazyFrame({"text": ["a"]}))


@pytest.mark.parametrize("half", ["\ud83d", "a \ude00", "\ud83d\ude00", "\ud800a"])
@pytest.mark.parametrize("task", [task for task in tiny.TASKS if "image" not in task])
def test_half_of_a_surrogate_pair_has_its_row_and_remedy(task, half):
    run = tiny.pipeline(task)
    *others, name = run.text_names
    rank = len(run.input_specs()[name].shape)
    bad, place = (["a", half], "[1]") if rank == 1 else ([["a"], ["b", half]], "[1][1]")
    with pytest.raises(ValueError, match="half of a surrogate pair") as caught:
        run(*[["a", "b"] for _ in others], bad)
    assert str(caught.value).startswith(f"{name}{place} has half")
    assert "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')" in str(caught.value)
    repaired = half.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert half != "\ud83d\ude00" or repaired == "\U0001f600"
    one = repaired if rank == 1 else [repaired, "b"]
    assert run(*["a" for _ in others], one)


def test_what_reads_one_text_checks_it_too():
    for read in (
        tiny.pipeline("classification").read,
        tiny.pipeline("generation").read,
        tiny.pipeline("translation").read,
        lambda text: tiny.pipeline("multiple_choice").read("a", [text]),
        lambda text: tiny.pipeline("reranking").read(text, ["a"]),
    ):
        with pytest.raises(ValueError, match="half of a surrogate pair"):
            read("a \ud83d")
    with pytest.raises(ValueError, match="conversation 0, message 0: content .*surr"):
        tiny.talker().chat([{"role": "user", "content": "a \ud83d"}])
    with pytest.raises(ValueError, match=r"stop='\\ud83d' .*surrogate"):
        tiny.talker().chat([{"role": "user", "content": "a"}], stop=["\ud83d"])
    for kind in other_libraries.KINDS:
        table = other_libraries.table(kind, {"role": ["user"], "content": ["a"]})
        with pytest.raises(ValueError, match="messages .*: pass a list"):
            tiny.talker().chat(table)


def test_labels_prompts_and_examples_are_texts_too(tmp_path):
    classify, embed = tiny.pipeline("classification"), tiny.pipeline("embedding")
    half = "has half of a surrogate pair"
    with pytest.raises(ValueError, match=rf"labels: '\\ud83d' {half}"):
        type(classify)(classify.model, classify.tokenizer, ["a", "\ud83d"])
    with pytest.raises(ValueError, match=rf"prompts: 'b\\ud83d' {half}"):
        type(embed)(embed.model, embed.tokenizer, prompts={"a": "b\ud83d"})
    with pytest.raises(ValueError, match=f"text 0 {half}"):
        classify.example_batches(["a \ud83d"])
    examples = Examples(["a", "b \ud83d"], labels=[classify.labels[0]] * 2, source="here")
    with pytest.raises(ValueError, match=rf"here: text\[1\] {half}"):
        TextBatches(examples, classify, batch_size=2)


def test_public_names_are_found_without_loading_tensorflow():
    program = (
        "import sys, keras_transformers as kt;"
        "assert {'TextClassifier', 'MaskFiller', 'results'} <= {*dir(kt.pipelines)};"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'TextClassifyer'"):
        _ = room.TextClassifyer
