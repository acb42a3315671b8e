"""Makes a graph's inputs from texts: finds the inputs that take them, and fills arrays."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.files.errors import short_repr
from keras_transformers.pipelines.results.reading import answer_types


def text_inputs(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the inputs that take texts, in order; none if no task takes these inputs.

    >>> text_inputs(["context", "question"])
    ('question', 'context')
    """
    known = (inputs for answer in answer_types().values() for inputs in answer.inputs)
    return next((inputs for inputs in known if set(inputs) == set(names)), ())


def takes_lists(name: str) -> bool:
    """Returns whether each row of an input is a list of texts, such as choices."""
    return any(name in answer.lists for answer in answer_types().values())


def split_line(line: str, names: Sequence[str]) -> list[Any]:
    r"""Splits a line at tabs into one text per name, or fewer if the line has fewer.

    >>> split_line("It rained.", ["text"]), split_line("a\tb\tc", ["text", "choices"])
    (['It rained.'], ['a', ['b', 'c']])
    """
    if len(names) == 1:
        return [line]
    found: list[Any] = line.split("\t")
    last = len(names) - 1
    if takes_lists(names[last]) and len(found) > last:
        return [*found[:last], found[last:]]
    return found


def string_column(name: str, texts: Iterable[Any], *, rank: int = 1) -> np.ndarray:
    """Returns a column of texts as bytes, in an array of dtype object.

    Args:
        name: the input's name, for the error message.
        texts: strings; for rank 2, lists of strings.
        rank: the input's rank.

    Returns:
        (batch,); for rank 2 (batch, longest), where "" pads shorter rows.

    Raises:
        ValueError: the texts have another type.

    >>> string_column("choices", [["a"], ["b", "c"]], rank=2).tolist()
    [[b'a', b''], [b'b', b'c']]
    """
    column = _listed(texts)
    if rank == 1:
        if column is None:
            raise ValueError(f"{name} must be a list of strings, not {short_repr(texts, 200)}")
        return strings(_checked(name, column, "list of strings"))
    wanted = "list with a list of strings for each row"
    if column is None:
        raise ValueError(f"{name} must be a {wanted}, not {short_repr(texts, 200)}")
    rows = []
    for number, row in enumerate(column):
        if (items := _listed(row)) is None:
            raise ValueError(
                f"{name} must be a {wanted}, but {name}[{number}] is {short_repr(row)}"
            )
        rows.append(_checked(f"{name}[{number}]", items, wanted, of=name))
    array = np.full((len(rows), max(map(len, rows), default=0)), b"", object)
    for number, row in enumerate(rows):
        array[number, : len(row)] = strings(row)
    return array


def strings(texts: Sequence[str | bytes]) -> np.ndarray:
    """Returns texts as an array of bytes, (batch,), dtype object."""
    return np.array(
        [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in texts],
        dtype=object,
    )


def without_tensors(values: Any) -> Any:
    """Returns a tensor's content, bytes or an array of them, and other values unchanged."""
    return values.numpy() if hasattr(values, "numpy") else values


def _listed(values: Any) -> list[Any] | None:
    """Returns values as a list; None for a string and anything else that is a single value."""
    values = without_tensors(values)
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    if is_one or getattr(values, "ndim", 1) == 0:
        return None
    return list(map(without_tensors, values))


def _checked(place: str, values: list[Any], wanted: str, *, of: str = "") -> list[Any]:
    """Returns the values; ValueError naming the first that is not a string."""
    for number, value in enumerate(values):
        if not isinstance(value, str | bytes):
            raise ValueError(
                f"{of or place} must be a {wanted}, but {place}[{number}] is {short_repr(value)}, "
                f"a {type(value).__name__}: leave it out, or pass a string"
            )
    return values
