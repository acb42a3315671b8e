"""What a hostile user passes ends with one line: the value, the place and a remedy."""

import functools
import math

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import tensorflow as tf
import tiny
from test_every_task import DATA, LABELS, TEXTS, bag_of_words
from test_labels import rows_of

import keras_transformers as kt

NAMES = [("negative", "positive")[label] for label in LABELS]


def frame(*columns, names):
    """A frame that may have several columns of one name."""
    return pandas.DataFrame(list(zip(*columns, strict=True)), columns=names)


# What is wrong -> the data, and parts of the message. `evaluate` reads it as `fit` does.
WRONG_DATA = {
    "two columns of texts": (
        lambda: frame(TEXTS, TEXTS, LABELS, names=["text", "text", "label"]),
        ["data: 2 columns are named 'text'", "rename"],
    ),
    "two columns of labels": (
        lambda: frame(TEXTS, LABELS, LABELS, names=["text", "label", "label"]),
        ["2 columns are named 'label'", "rename"],
    ),
    "two columns of Arrow": (
        lambda: pyarrow.table([TEXTS, TEXTS, LABELS], names=["text", "text", "label"]),
        ["2 columns are named 'text'", "rename"],
    ),
    "two columns that may be meant": (
        lambda: {"sentence": TEXTS, "review": TEXTS, "label": LABELS},
        ["sentence or review", "columns={'text': 'sentence'}"],
    ),
    "an empty frame": (pandas.DataFrame, ["data: ", "no columns", "pass text, label"]),
    "an empty frame of polars": (polars.DataFrame, ["no columns", "pass text, label"]),
    "no rows": (
        lambda: pandas.DataFrame({"text": [], "label": []}),
        ["data: ", "no rows", "at least one"],
    ),
    "nothing": (list, ["no rows", "at least one"]),
    "an empty mapping": (dict, ["no columns", "pass text, label"]),
    "None": (lambda: None, ["NoneType", "pass a tuple of columns"]),
    "one-hot": (
        lambda: (TEXTS, np.eye(2)[LABELS]),
        ["data, row 0", "[1.0, 0.0]", "argmax(axis=-1)"],
    ),
    "one-hot of TensorFlow": (
        lambda: (TEXTS, tf.one_hot(LABELS, 2, dtype=tf.int32)),
        ["data, row 0", "[1, 0]", "argmax(axis=-1)"],
    ),
    "shape (n, 1)": (
        lambda: (TEXTS, np.array(LABELS)[:, None]),
        ["data, row 0", "[0]", "reshape(-1)"],
    ),
    "shape (n, 1) of names": (
        lambda: (TEXTS, np.array(NAMES)[:, None]),
        ["data, row 0", "['negative']", "reshape(-1)"],
    ),
    "a frame for a column": (
        lambda: (TEXTS, pandas.DataFrame({"label": LABELS})),
        ["a table with the columns 'label'", "one of its columns"],
    ),
    "Int64 with NA": (
        lambda: (TEXTS, pandas.array([None, *LABELS[1:]], "Int64")),
        ["data, row 0", "<NA>", "fill it in, or drop the row"],
    ),
    "names with NA": (
        lambda: {"text": TEXTS, "label": pandas.array([*NAMES[:-1], None], "string")},
        ["data, row 23", "<NA>", "fill it in, or drop the row"],
    ),
    "NaN": (
        lambda: (TEXTS, [math.nan, *map(float, LABELS[1:])]),
        ["data, row 0", "nan", "fill it in, or drop the row"],
    ),
    "complex": (lambda: (TEXTS, np.array(LABELS) + 0j), ["data, row 0", "0j", "integers"]),
    "an unknown label": (
        lambda: (TEXTS, ["joy", *NAMES[1:]]),
        ["data, row 0", "'joy'", "negative, positive", "labels=[...]"],
    ),
}


def is_named(call, parts):
    """Checks that a call ends with one line of the parts."""
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    message = str(raised.value)
    missing = [part for part in parts if part not in message]
    assert not missing, message
    assert "\n" not in message


@pytest.mark.parametrize("name", WRONG_DATA)
def test_wrong_data(name):
    make, parts = WRONG_DATA[name]
    classify = tiny.pipeline("classification")
    is_named(lambda: kt.evaluate(classify, make()), parts)
    is_named(lambda: kt.fit(classify, make(), epochs=1, quiet=True), parts)
    if name != "None":  # which is no validation data
        parts = [part.replace("data", "validation") for part in parts if part != "NoneType"]
        fit = functools.partial(kt.fit, classify, (TEXTS, NAMES), epochs=1, quiet=True)
        is_named(lambda: fit(validation=make()), parts)


# Task -> what the label column is called, and the message of labels of shape (n, 1) and one-hot.
OTHER_LABELS = {
    "next_sentence": "label",
    "image_classification": "label",
    "multiple_choice": "label",
    "regression": "score",
    "reranking": "score",
}


@pytest.mark.parametrize("task", OTHER_LABELS)
def test_labels_of_other_tasks(task):
    name, rows, pipeline = OTHER_LABELS[task], rows_of(task), tiny.pipeline(task)
    table = {column: [row[column] for row in rows] for column in rows[0]}
    ids = [row % 2 for row in range(len(rows))]
    for labels, parts in (
        (np.eye(2)[ids], ["data, row 0", "[1.0, 0.0]", "argmax(axis=-1)"]),
        (np.array(ids)[:, None], ["data, row 0", "[0]", "reshape(-1)"]),
        (pandas.array([None, *ids[1:]], "Int64"), ["data, row 0", f"no {name} (<NA>)", "fill it"]),
    ):
        data = {**table, name: labels}
        is_named(lambda data=data: kt.evaluate(pipeline, data), parts)
        is_named(lambda data=data: kt.fit(pipeline, data, epochs=1, quiet=True), parts)


def test_a_column_of_one_fault_has_one_line():
    """Each of its rows has it."""
    weights = np.ones((24, 1))
    data = {"text": TEXTS, "label": LABELS, "weight": weights}
    with pytest.raises(ValueError, match="row 0: weight is .*reshape.*no other row") as raised:
        kt.fit(tiny.pipeline("classification"), data, quiet=True)
    assert str(raised.value).count("row") < 5


WEIGHTS = {
    "negative": ([-1.0], ["data, row 0", "-1", "from 0"]),
    "infinite": ([math.inf], ["data, row 0", "inf", "from 0"]),
    "infinite in float32": ([1e300], ["data, row 0", "1e+300", "1e30"]),
    "no number": (["heavy"], ["data, row 0", "'heavy'", "rename"]),
    "NaN": ([math.nan], ["data, row 0", "no weight (nan)", "fill it in"]),
    "NA": ([pandas.NA], ["data, row 0", "no weight (<NA>)", "fill it in"]),
    "all zero": ([0] * 24, ["data: all 24 weights are 0", "leave the column out"]),
    "too few": (None, ["23 of weight", "one value of each per row"]),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_wrong_weights(name):
    first, parts = WEIGHTS[name]
    weights = [1.0] * 23 if first is None else [*first, *[1.0] * (24 - len(first))]
    data = {"text": TEXTS, "label": LABELS, "weight": weights}
    is_named(lambda: kt.fit(tiny.pipeline("classification"), data, quiet=True), parts)


OPTIONS = {
    "unknown class": ({"class_weight": {"joy": 2}}, ["'joy'", "negative, positive"]),
    "index of a class": ({"class_weight": {1: 2}}, ["key 1", "'positive'"]),
    "negative": ({"class_weight": {"positive": -1}}, ["['positive']", "-1", "from 0"]),
    "NaN": ({"class_weight": {"positive": math.nan}}, ["['positive']", "nan", "from 0"]),
    "NA": ({"class_weight": {"positive": pandas.NA}}, ["['positive']", "<NA>", "from 0"]),
    "text": ({"class_weight": {"positive": "3"}}, ["['positive']", "'3'", "from 0"]),
    "huge": ({"class_weight": {"positive": 10**400}}, ["['positive']", "1000", "1e30"]),
    "infinite in float32": ({"class_weight": {"positive": 1e39}}, ["['positive']", "1e30"]),
    "all zero": (
        {"class_weight": {"positive": 0, "negative": 0}},
        ["no example with a weight above 0", "pass a weight above 0"],
    ),
    "array": ({"class_weight": np.ones(2)}, ["class_weight=", "pass 'balanced', or a mapping"]),
    "typo": ({"class_weight": "balance"}, ["'balance'", "'balanced'"]),
    "monitor": (
        {"monitor": "val_macrof1"},
        ["monitor='val_macrof1'", "val_macro_f1", "val_loss", "use one of"],
    ),
    "number to monitor": ({"monitor": 3}, ["monitor=3", "'val_loss'"]),
    "list to monitor": ({"monitor": ["val_loss"]}, ["monitor=['val_loss']", "name"]),
    "patience below 0": ({"patience": -1}, ["patience=-1", "0 or more"]),
    "half a patience": ({"patience": 1.5}, ["patience=1.5", "whole number", "0 or more"]),
    "text of patience": ({"patience": "2"}, ["patience='2'", "whole number"]),
    "number to calibrate": ({"calibrate": 1.5}, ["calibrate=1.5", "True or False"]),
    "bool of patience": ({"patience": True}, ["patience=True", "whole number"]),
    "epochs": ({"epochs": "2"}, ["epochs='2'", "whole number, 1 or more"]),
    "learning rate": ({"learning_rate": "x"}, ["learning_rate='x'", "a number, above 0"]),
    "columns": ({"columns": ["text"]}, ["columns=['text']", "mapping", "'text': '...'"]),
    "bad rows": ({"on_bad_rows": "skip"}, ["on_bad_rows='skip'", "'error' or 'drop'"]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_options(name):
    options, parts = OPTIONS[name]
    data = (TEXTS, LABELS)
    options = {"epochs": 1, "quiet": True, "validation": data} | options
    is_named(lambda: kt.fit(bag_of_words(), data, **options), parts)


@pytest.mark.parametrize("option", [{"monitor": "val_loss"}, {"patience": 3}, {"patience": 0}])
def test_what_needs_validation_data(option):
    ((name, value),) = option.items()
    parts = [f"{name}={value!r}", "validation="]
    is_named(lambda: kt.fit(bag_of_words(), (TEXTS, LABELS), **option), parts)


def test_class_weight_of_a_task_without_labels():
    data = DATA["reranking"][0]
    parts = ["class_weight", "reranking", "leave it out"]
    is_named(lambda: kt.fit(tiny.pipeline("reranking"), data, class_weight="balanced"), parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["no examples", "empty"]),
        ("text\tlabel\n", ["no examples", "header"]),
        ("text\ttext\tlabel\na\tb\tpositive\nc\td\tnegative\n", ["2 columns named 'text'"]),
        ("text\tlabel\na\t\nb\tpositive\n", ["a.tsv:2: an empty label", "fill it in"]),
        ("text\tlabel\tweight\na\tpositive\t-1\nb\tnegative\t1\n", ["a.tsv:2: weight is '-1'"]),
        ("text\tlabel\tweight\na\tpositive\t0\nb\tnegative\t0\n", ["a.tsv", "all 2 weights are 0"]),
    ],
)
def test_wrong_files(text, parts, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(text)
    columns = {"text": "text", "label": "label"} | ({"weight": "weight"} if "w" in text else {})
    fit = functools.partial(kt.fit, tiny.pipeline("classification"), path, columns=columns)
    is_named(lambda: fit(quiet=True), parts)
