"""Columns of data in memory, in the forms that people have."""

import numpy as np
import other_libraries
import pytest
import tensorflow as tf

from keras_transformers.data.tables.in_memory import LABEL, TEXT, Wanted, columns_of

WANTED = [Wanted("text", TEXT), Wanted("label", LABEL)]
TEXTS, LABELS = ["a", "ü", ""], [1, 0, 1]
EXPECTED = {"text": TEXTS, "label": LABELS}
TABLE = {"idx": [7, 8, 9], "sentence": TEXTS, "label": LABELS}


def of_pandas():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(TABLE, index=[5, 5, 2])


def of_polars():
    return pytest.importorskip("polars").DataFrame(TABLE)


def of_arrow():
    return pytest.importorskip("pyarrow").table(TABLE)


def of_datasets():
    return pytest.importorskip("datasets").Dataset.from_dict(TABLE)


def of_tensorflow():
    return tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))


def named_of_tensorflow():
    return tf.data.Dataset.from_tensor_slices(TABLE)


@pytest.mark.parametrize(
    "data",
    [
        (TEXTS, LABELS),
        (tuple(TEXTS), np.array(LABELS)),
        (np.array(TEXTS, object), tf.constant(LABELS).numpy()),
        TABLE,
        [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)],
        list(zip(TEXTS, LABELS, strict=True)),
        of_pandas,
        of_polars,
        of_arrow,
        of_datasets,
        of_tensorflow,
        named_of_tensorflow,
    ],
)
def test_forms(data):
    assert columns_of(data() if callable(data) else data, WANTED) == EXPECTED


def test_columns_by_name():
    table = {"body": TEXTS, "stars": LABELS, "label": ["x"] * 3}
    assert columns_of(table, WANTED, names={"text": "body", "label": "stars"}) == EXPECTED


# Attributes that tell one library's tables from another's, and what a column's type may be asked.
ATTRIBUTES = [
    *("features", "column_names", "columns", "column", "schema", "to_pylist", "to_list", "tolist"),
    *("numpy", "names", "name", "items", "keys", "shape", "dtype", "ndim", "__len__", "iloc"),
]


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_columns_may_have_any_name(kind):
    wanted = [Wanted("text"), Wanted("label")]
    table = {"text": TEXTS, "label": LABELS} | {key: ["x", "y", "z"] for key in ATTRIBUTES}
    assert columns_of(other_libraries.table(kind, table), wanted) == EXPECTED
    for name in ATTRIBUTES:
        table = {key: ["x"] * 3 for key in ATTRIBUTES} | {name: TEXTS, "label": LABELS}
        data = other_libraries.table(kind, table)
        assert columns_of(data, wanted, names={"text": name}) == EXPECTED
        assert columns_of(table, wanted, names={"text": name}) == EXPECTED


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_a_table_in_place_of_a_column(kind):
    table = other_libraries.table(kind, {"label": LABELS})
    with pytest.raises(ValueError, match="table .*'label': pass one"):
        columns_of((TEXTS, table), WANTED)
    with pytest.raises(ValueError, match="splits train.*pass one"):
        columns_of({"train": table}, WANTED)


def test_tables_with_two_columns_of_one_name_or_none_in_memory():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([["a", 0, 1]], columns=["text", "label", "label"])
    with pytest.raises(ValueError, match="2 columns .*'label': rename"):
        columns_of(table, WANTED)
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"a LazyFrame, .* pass data.collect\(\)"):
        columns_of(polars.LazyFrame(TABLE), WANTED)
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict(TABLE).to_iterable_dataset()
    with pytest.raises(TypeError, match=r"an? IterableDataset, .*list\(data\) of a stream"):
        columns_of(stream, WANTED)
    assert columns_of(list(stream), WANTED) == EXPECTED


def test_classes_in_lists_have_names():
    datasets = pytest.importorskip("datasets")
    tags = datasets.ClassLabel(names=["O", "B-X"])
    features = {"words": datasets.List(datasets.Value("string")), "tags": datasets.List(tags)}
    data = datasets.Dataset.from_dict(
        {"words": [["a", "b"], []], "tags": [[1, 0], []]}, features=datasets.Features(features)
    )
    found = columns_of(data, [Wanted("words"), Wanted("labels", ("tags",))])
    assert found["labels"] == [["B-X", "O"], []]


@pytest.mark.parametrize(
    ("text", "character"),
    [("\ud83d", 0), ("tweet \ud83d", 6), ("\udc80 b", 0), ("\ude00\ud83d", 0)],
)
def test_half_of_a_surrogate_pair(text, character):
    for data in (
        (["a", text], [0, 1]),
        {"text": np.array(["a", text], object), "label": [0, 1]},
        [("a", 0), (text, 1)],
        {"text": ["a", {"inner": [text]}], "label": [0, 1]},
        {"text": ["a", ("b", text)], "label": [0, 1]},
    ):
        with pytest.raises(ValueError, match="^row 1: text .*surrogate") as caught:
            columns_of(data, WANTED)
        assert f"at character {character}: repair" in str(caught.value)
        assert "'surrogatepass'" in str(caught.value)


def test_classes_of_datasets_have_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    data = datasets.Dataset.from_dict({"sentence": TEXTS, "label": LABELS}, features=features)
    assert columns_of(data, WANTED)["label"] == ["good", "bad", "good"]
    splits = datasets.DatasetDict({"train": data, "test": data})
    with pytest.raises(ValueError, match=r"train, test: .*data\['tr"):
        columns_of(splits, WANTED)


def test_categories_of_pandas():
    pandas = pytest.importorskip("pandas")
    data = pandas.DataFrame({"text": TEXTS, "label": pandas.Categorical(["x", "y", "x"])})
    assert columns_of(data, WANTED)["label"] == ["x", "y", "x"]


def test_nested_values():
    data = tf.data.Dataset.from_tensors(
        {"text": "a", "label": {"start": tf.constant([3]), "text": tf.constant(["b"])}}
    )
    assert columns_of(data, WANTED)["label"] == [{"start": [3], "text": ["b"]}]


@pytest.mark.parametrize("column", ["text", "label"])
def test_values_nested_thousands_deep_are_named(column):
    value: object = "a"
    for _ in range(5000):
        value = [value]
    data = {"text": ["a", "b"], "label": [0, 1]} | {column: ["a", value]}
    with pytest.raises(ValueError, match=f"row 1: {column} is nested more than 20 deep"):
        columns_of(data, WANTED)


def test_optional_columns():
    wanted = [Wanted("text"), Wanted("id", required=False)]
    assert columns_of((["a"],), wanted) == {"text": ["a"]}
    assert columns_of((["a"], [1]), wanted) == {"text": ["a"], "id": [1]}
    more = [*wanted, Wanted("score", required=False)]
    assert columns_of((["a"], [1]), more) == {"text": ["a"], "id": [1]}
    assert columns_of(["a", "b"], wanted) == {"text": ["a", "b"]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((TEXTS, LABELS[1:]), "differ in length, 3 of text, 2 of label"),
        ((TEXTS, [1, None, 0]), "row 1: .*None.*drop the row"),
        ((TEXTS, [1, 0, float("nan")]), r"row 2: no label \(nan\)"),
        (([b"\xff"], [0]), "row 0: text is not UTF-8"),
        (([], []), "the data has no rows"),
        ([], "the data has no rows"),
        ((TEXTS, LABELS, LABELS), r"a tuple of 3: pass the columns \(text, label\)"),
        ((TEXTS, "yes"), "'yes'.*pass a list"),
        ({"sentence": TEXTS}, r"'label'.*sentence.*columns=\{'label': '...'\}"),
        (
            {"sentence": TEXTS, "review": TEXTS, "label": LABELS},
            r"sentence or review.*columns=\{'text': 'sentence'\}",
        ),
        (TEXTS, r"row 0 .*'a'.*\(text, label\)"),
        ([{"text": "a", "label": 0}, {"text": "b"}], "row 1: no 'label' among text"),
        ([("a", 0), ("b",)], "row 1: .*expected 2 values, as row 0 has"),
        (
            tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2),
            "the tf.data.Dataset is bat",
        ),
        (tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).take(0), "the data has no rows"),
        (
            tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).repeat(),
            "has no end: pass it before",
        ),
    ],
)
def test_errors(data, message):
    with pytest.raises(ValueError, match=message):
        columns_of(data, WANTED)


def test_wrong_names():
    with pytest.raises(ValueError, match="'texts' .*text, label"):
        columns_of(TABLE, WANTED, names={"texts": "sentence"})
    with pytest.raises(ValueError, match="'body' .*idx, sentence, label"):
        columns_of(TABLE, WANTED, names={"text": "body"})


@pytest.mark.parametrize("data", [3, "text", None, {1, 2}])
def test_other_kinds(data):
    with pytest.raises(TypeError, match=f"data is a {type(data).__name__}: pass a tuple"):
        columns_of(data, WANTED)
