"""Makes a graph's inputs from texts: finds the inputs that take them, and fills arrays."""

import io
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.dependencies import tables
from keras_transformers.files.errors import short_repr
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.tasks.answers import answer_types


def text_inputs(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the inputs that take texts, in order; none if no task takes these inputs.

    >>> text_inputs(["context", "question"])
    ('question', 'context')
    """
    sets = (inputs for answer in answer_types() for inputs in answer.inputs)
    return next((inputs for inputs in sets if set(inputs) == set(names)), ())


def takes_lists(name: str) -> bool:
    """Returns whether each row of an input is a list of texts, such as choices."""
    takers = (
        answer for answer in answer_types() if any(name in inputs for inputs in answer.inputs)
    )
    return any(name in answer.lists for answer in itertools.islice(takers, 1))


def split_line(line: str, names: Sequence[str]) -> list[Any]:
    r"""Splits a line at tabs into one text per name, or fewer if the line has fewer.

    >>> split_line("It rained.", ["text"]), split_line("a\tb\tc", ["text", "choices"])
    (['It rained.'], ['a', ['b', 'c']])
    """
    if len(names) == 1:
        return [line]
    parts: list[Any] = line.split("\t")
    last = len(names) - 1
    if takes_lists(names[last]) and len(parts) > last:
        return [*parts[:last], parts[last:]]
    return parts


def call_columns(names: Sequence[str], texts: Sequence[Any]) -> tuple[list[Any], bool]:
    """Returns the inputs of a call as columns.

    Args:
        names: the names of the inputs, for error messages.
        texts: each a string, or each a list of strings (lists of strings for inputs of rank 2,
            where one row is a list); tensors count as what they hold.

    Returns:
        A list per input, and whether they are one row.

    Raises:
        ValueError: an input is a table, a mapping, a file, a path or a set.

    >>> call_columns(["text"], ["a"]), call_columns(["text"], [["a", "b"]])
    (([['a']], True), ([['a', 'b']], False))
    """
    values = [tables.without_tensors(value) for value in texts]
    for name, value in zip(names, values, strict=False):
        check_is_list(name, value)  # before counting: one table may hold several inputs
    one = bool(values) and isinstance(values[0], str | bytes)
    return [[value] for value in values] if one else values, one


def string_column(name: str, texts: Iterable[Any], *, rank: int = 1) -> np.ndarray:
    """Returns a column of texts as bytes, in an array of dtype object.

    Args:
        name: the input's name, for the error message.
        texts: strings; for rank 2, lists of strings.
        rank: the input's rank.

    Returns:
        (batch,); for rank 2 (batch, longest), where "" pads shorter rows.

    Raises:
        ValueError: the texts have another type, are a table or a file, or one has half of a
            surrogate pair. The message has the row and the remedy.

    >>> string_column("choices", [["a"], ["b", "c"]], rank=2).tolist()
    [[b'a', b''], [b'b', b'c']]
    """
    wanted = "list of strings" if rank == 1 else "list with a list of strings for each row"
    column = _listed(name, texts, wanted)
    if rank == 1:
        return _array(_encoded(name, column, wanted))
    rows = []
    for number, row in enumerate(column):
        place = f"{name}[{number}]"
        items = _listed(name, row, wanted, but=place)
        rows.append(_encoded(place, items, wanted, of=name))
    array = np.full((len(rows), max(map(len, rows), default=0)), b"", object)
    for number, row in enumerate(rows):
        array[number, : len(row)] = _array(row)
    return array


def strings(texts: Sequence[str | bytes]) -> np.ndarray:
    """Returns texts as an array of bytes, (batch,), dtype object."""
    return _array([as_utf8(f"text {number}", text) for number, text in enumerate(texts)])


def check_is_list(name: str, values: object, wanted: str = "list of strings") -> None:
    """Raises ValueError for a table, a mapping, a file, a path or a set.

    Python iterates over column names, keys or lines, which are not the rows that the user means.

    Args:
        name: the input's name, for the message.
        values: what a user passed for a list of texts.
        wanted: what it should be.
    """
    remedy = ""
    kind = f"a {type(values).__name__}"
    if tables.is_table(values) or isinstance(values, Mapping):
        names = list(values) if isinstance(values, Mapping) else tables.column_names(values)
        kind += f" with the columns {', '.join(map(str, names))}"[:200]
        example = name if name in names else next(iter(names), name)
        remedy = (
            f"pass one of its columns, such as data[{example!r}], or all of it to "
            "keras_transformers.predict, which returns it with the answers as columns"
        )
    elif tables.is_lazy_table(values):
        remedy = (
            "read it, with collect() or list(), and pass its column of texts, or all of it to "
            "keras_transformers.predict"
        )
    elif isinstance(values, io.IOBase):
        remedy = "read it and pass what is in it, such as file.read().splitlines()"
    elif isinstance(values, os.PathLike):
        remedy = "read the file and pass what is in it, or pass it to keras_transformers.predict"
    elif isinstance(values, set | frozenset):
        remedy = "a set has no order, so pass sorted(texts)"
    if remedy:
        raise ValueError(f"{name} must be a {wanted}, not {kind}: {remedy}")


def named_columns(inputs: Any) -> dict[str, Any]:
    """Returns the columns of a mapping or a table by name.

    Raises:
        ValueError: it is neither.
    """
    if tables.is_table(inputs):
        return {name: tables.column(inputs, name) for name in tables.column_names(inputs)}
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"inputs are a {type(inputs).__name__}: pass a mapping such as {{'text': [...]}}, or a "
            "table with a column for each input"
        )
    return dict(inputs)


def _listed(name: str, values: Any, wanted: str, *, but: str = "") -> list[Any]:
    """Returns values as a list; ValueError for a string and any other single value."""
    check_is_list(but or name, values, wanted)
    if (items := tables.listed(values)) is None:
        values = tables.without_tensors(values)
        shown = f"but {but} is {short_repr(values)}" if but else f"not {short_repr(values, 200)}"
        raise ValueError(f"{name} must be a {wanted}, {shown}")
    return list(map(tables.without_tensors, items))


def _encoded(place: str, values: list[Any], wanted: str, *, of: str = "") -> list[bytes]:
    """Returns strings as UTF-8; ValueError naming the first that is not one, or not Unicode."""
    encoded = []
    for number, value in enumerate(values):
        if not isinstance(value, str | bytes):
            raise ValueError(
                f"{of or place} must be a {wanted}, but {place}[{number}] is {short_repr(value)}, "
                f"a {type(value).__name__}: leave it out, or pass a string"
            )
        encoded.append(as_utf8(f"{place}[{number}]", value))
    return encoded


def _array(texts: Sequence[bytes]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array
