"""Columns of any values: read one way as a whole, or refused with a sentence, never value by value.

`pytest tests/fuzz --fuzz-seconds 60` searches for a minute with each kind of column.
"""

import re

import other_libraries
import pytest
from hypothesis import strategies as st
from mutation import ODD_VALUES, search

from keras_transformers.data.tables.in_memory import LABEL, TEXT, Wanted, columns_of
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.texts import string_column

# Any code points, also halves of surrogate pairs, which hypothesis leaves out by default.
texts = st.text(st.characters(exclude_categories=()), max_size=6)
numbers = st.integers(-101, 6) | st.sampled_from(
    [0.0, 1.0, 0.5, -0.0, 1e308, float("inf"), 10**400]
)
scalars = numbers | st.booleans() | st.sampled_from(["0", "1", " 2", "1.0", "a", "true"])
labels = st.lists(
    st.sampled_from(["0", "1", "2", "3", "1.0", "-1", "a", "b", "true", "True"]),
    min_size=1,
    max_size=4,
    unique=True,
)
cells = scalars | st.lists(scalars, max_size=3) | st.sampled_from(ODD_VALUES)
NUMBER = re.compile(r"-?\d+(\.\d+)?")
NAMES = ("text", "label", "columns", "column_names", "features", "column", "to_pylist", "numpy", "")


def refused(error):
    """A message for people, in one line, and no error of an encoder."""
    assert not isinstance(error, UnicodeError)
    assert str(error)
    assert "\n" not in str(error)


def flat(columns):
    return [x for c in columns for cell in c for x in (cell if isinstance(cell, list) else [cell])]


def test_columns_of_labels(seconds):
    def check(case):
        names, columns, kind, labels_are = case
        sources = [(Source(f"set {number}"), column) for number, column in enumerate(columns)]
        column = LabelColumn(labels=lambda pipeline: names, cells=kind)
        try:
            found = column.as_names(None, sources, labels_are)
        except ValueError as error:
            refused(error)
            return
        assert set(flat(found)) <= set(names)
        if kind == "set":  # indicators have as many values as there are labels
            return
        pairs = zip(flat(columns), flat(found), strict=True)
        read = [(x, y) for x, y in pairs if isinstance(x, int | float) and not isinstance(x, bool)]
        are_indices = all(0 <= x < len(names) and names[int(x)] == y for x, y in read)
        are_names = all(NUMBER.fullmatch(y) and float(x) == float(y) for x, y in read)
        assert are_indices or are_names

    columns = st.lists(st.lists(cells, max_size=5), min_size=1, max_size=2)
    kinds = st.sampled_from(["one", "words", "set"])
    ways = st.sampled_from([None, None, "names", "indices", "indicators"])
    cases = st.tuples(labels, columns, kinds, ways)
    search("columns of labels", cases, check, seconds, examples=300)


@pytest.mark.parametrize("kind", [*other_libraries.KINDS, "dict", "rows"])
def test_tables_with_columns_of_any_name(kind, seconds):
    wanted = [Wanted("text", TEXT), Wanted("label", LABEL)]

    def check(case):
        names, rows = case
        table = {name: [f"{name} {row}" for row in range(rows)] for name in names}
        data = table
        if kind == "rows":
            data = [{name: table[name][row] for name in names} for row in range(rows)]
        elif kind != "dict":
            data = other_libraries.table(kind, table)
        for name in names:
            chosen = {"text": name, "label": name}
            assert columns_of(data, wanted, names=chosen) == dict.fromkeys(chosen, table[name])

    names = st.lists(st.sampled_from(NAMES) | st.text("abc_", max_size=3), min_size=1, unique=True)
    cases = st.tuples(names, st.integers(1, 3))
    search(f"tables of {kind}", cases, check, seconds, examples=20)


def test_texts_of_calls_and_of_training(seconds):
    def check(column):
        for read in (
            lambda: string_column("text", column).tolist(),
            lambda: string_column("choices", [column], rank=2)[0].tolist(),
            lambda: columns_of({"text": column}, [Wanted("text")])["text"],
        ):
            try:
                found = read()
            except ValueError as error:
                refused(error)
                continue
            for text, value in zip(column, found, strict=True):
                if isinstance(text, str):
                    value = value if isinstance(value, bytes) else value.encode()
                    assert value == text.encode("utf-8", "surrogateescape")

    halves = st.sampled_from(["\ud83d", "a \ude00", "\ud83d\ude00", "\udcff"])
    columns = st.lists(texts | halves | st.sampled_from(ODD_VALUES), max_size=3)
    search("texts", columns, check, seconds, examples=300)
