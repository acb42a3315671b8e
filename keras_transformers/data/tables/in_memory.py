"""Reads columns of data in memory: lists, data frames, Arrow tables, `datasets`, `tf.data`.

Libraries are recognized by the methods of their objects, and none is imported.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Wanted", "columns_of"]

_DEEPEST_VALUE = 20  # of lists and mappings in a cell; the answers of a question take three


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A column that a task reads.

    Attributes:
        name: its name here, such as "text" or "label".
        usual: its names in public data sets.
        required: whether data must have it; required columns come first.
    """

    name: str
    usual: tuple[str, ...] = ()
    required: bool = True


# The names in public data sets; `Wanted.usual` of the columns that most tasks share.
TEXT = ("sentence", "review", "tweet", "content", "comment", "message", "document", "texts")
TEXT_A = ("sentence1", "premise", "question1", "text_a", "text1", "sentence_A", "query")
TEXT_B = ("sentence2", "hypothesis", "question2", "text2", "sentence_B", "passage", "sentence")
LABEL = ("labels", "sentiment", "category", "class", "target", "topic", "intent", "emotion",
         "gold_label", "coarse_label")  # fmt: skip


def columns_of(
    data: Any, wanted: Sequence[Wanted], *, names: Mapping[str, str] | None = None
) -> dict[str, list[Any]]:
    """Returns the wanted columns of data in memory, each a list with one value per row.

    Args:
        data: one of

            - a tuple of columns in the order of `wanted`: lists, arrays or series;
            - a mapping from names to columns;
            - a pandas or polars DataFrame, an Arrow table, or a split of the `datasets` library;
            - a list of rows: mappings, or tuples in the order of `wanted`; strings if one column is
              wanted;
            - a `tf.data.Dataset` of such rows, as in TensorFlow Datasets, not batched.
        wanted: the columns to read.
        names: name in `wanted` -> name in the data, where they differ.

    Returns:
        Name in `wanted` -> values. Optional columns that are missing are left out. Bytes become
        strings.

    Raises:
        TypeError: the data has none of these types.
        ValueError: a column is missing, several could be meant, columns differ in length, there are
            no rows, or a value is missing; the message has the column and the row.

    Example:
        >>> columns_of((["a", "b"], [0, 1]), [Wanted("text"), Wanted("label")])
        {'text': ['a', 'b'], 'label': [0, 1]}
        >>> columns_of({"sentence": ["a"]}, [Wanted("text", ("sentence",))])
        {'text': ['a']}
    """
    names = dict(names or {})
    if unknown := sorted(set(names) - {each.name for each in wanted}):
        known = ", ".join(each.name for each in wanted)
        raise ValueError(
            f"columns={names}: no column {unknown[0]!r} is read; pass names for {known}"
        )
    found = _chosen(data, wanted, names)
    lengths = {name: len(values) for name, values in found.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise ValueError(f"the columns differ in length, {counts}: pass one value of each per row")
    if not all(lengths.values()):
        raise ValueError("the data has no rows")
    return {name: [_value(name, row, x) for row, x in enumerate(v)] for name, v in found.items()}


def _chosen(data: Any, wanted: Sequence[Wanted], names: Mapping[str, str]) -> dict[str, list[Any]]:
    if isinstance(data, tf.data.Dataset):
        if _is_batched(data):
            raise ValueError("the tf.data.Dataset is batched: pass it before batch(), or unbatch()")
        if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError("the tf.data.Dataset has no end: pass it before repeat(), or take(n)")
        data = list(data.as_numpy_iterator())
        if not data:
            raise ValueError("the tf.data.Dataset has no elements")
    if isinstance(data, tuple):
        return _in_order(data, wanted)
    if isinstance(data, Mapping):
        if splits := [name for name, part in data.items() if _names_of(part) is not None]:
            raise ValueError(
                f"the data has the splits {', '.join(map(str, splits))}: pass one of them, such as "
                f"data[{splits[0]!r}]"
            )
        return _named(data, list(data), wanted, names)
    if (found := _names_of(data)) is not None:
        return _named(data, found, wanted, names)
    if isinstance(data, Sequence | np.ndarray) and not isinstance(data, str | bytes):
        return _of_rows(list(data), wanted, names)
    raise TypeError(
        f"data is a {type(data).__name__}: pass a tuple of columns, a mapping, a DataFrame, an "
        "Arrow table, a split of datasets, a tf.data.Dataset, a list of rows, or a file's path"
    )


def _in_order(data: tuple[Any, ...], wanted: Sequence[Wanted]) -> dict[str, list[Any]]:
    least = sum(each.required for each in wanted)
    if not least <= len(data) <= len(wanted):
        expected = ", ".join(each.name for each in wanted)
        raise ValueError(f"data is a tuple of {len(data)}: pass the columns ({expected})")
    return {each.name: _list(column) for each, column in zip(wanted, data, strict=False)}


def _of_rows(
    rows: list[Any], wanted: Sequence[Wanted], names: Mapping[str, str]
) -> dict[str, list[Any]]:
    if not rows:
        raise ValueError("the data has no rows")
    if isinstance(rows[0], Mapping):
        keys = list(rows[0])
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or set(row) != set(keys):
                raise ValueError(f"row {number} has other names than row 0, which has {keys}")
        return _named({key: [row[key] for row in rows] for key in keys}, keys, wanted, names)
    if isinstance(rows[0], tuple | list):
        width = len(rows[0])
        for number, row in enumerate(rows):
            if not isinstance(row, tuple | list) or len(row) != width:
                raise ValueError(f"row {number} needs {width} values, as row 0 has: {row!r:.80}")
        return _in_order(tuple(zip(*rows, strict=True)), wanted)
    if len([each for each in wanted if each.required]) > 1:
        expected = ", ".join(each.name for each in wanted)
        raise ValueError(
            f"row 0 of the data is {rows[0]!r:.80}: pass columns or rows of ({expected})"
        )
    return {wanted[0].name: rows}


def _named(
    data: Any, found: list[Any], wanted: Sequence[Wanted], names: Mapping[str, str]
) -> dict[str, list[Any]]:
    chosen = {}
    for each in wanted:
        name = names.get(each.name)
        if name is None:
            candidates = (
                [each.name] if each.name in found else [x for x in each.usual if x in found]
            )
            if len(candidates) > 1:
                raise ValueError(
                    f"{' or '.join(candidates)} may be the column {each.name!r}: pass "
                    f"columns={{{each.name!r}: {candidates[0]!r}}}"
                )
            name = candidates[0] if candidates else None
        elif name not in found:
            raise ValueError(f"no column {name!r} among {', '.join(map(str, found))}")
        if name is not None:
            chosen[each.name] = _with_names(data, name, _list(_column(data, name)))
        elif each.required:
            raise ValueError(
                f"no column {each.name!r} among {', '.join(map(str, found))}: pass "
                f"columns={{{each.name!r}: '...'}}"
            )
    return chosen


def _names_of(data: Any) -> list[Any] | None:
    """Returns the names of the columns: Arrow's and datasets', pandas' and polars'."""
    for attribute in ("column_names", "columns"):
        found = getattr(data, attribute, None)
        if isinstance(found, Mapping):  # of several splits
            return None
        if found is not None and not callable(found) and hasattr(data, "__getitem__"):
            return list(found)
    return None


def _column(data: Any, name: Any) -> Any:
    return data.column(name) if callable(getattr(data, "column", None)) else data[name]


def _with_names(data: Any, name: str, values: list[Any]) -> list[Any]:
    """Returns classes by name, if `datasets` knows the names of its ClassLabel's integers."""
    feature = (getattr(data, "features", None) or {}).get(name)
    classes = getattr(feature, "names", None)
    if not isinstance(classes, list) or not all(isinstance(value, int) for value in values):
        return values
    return [classes[value] if 0 <= value < len(classes) else value for value in values]


def _list(column: Any) -> list[Any]:
    for method in ("to_pylist", "to_list", "tolist"):
        if callable(convert := getattr(column, method, None)):
            return list(convert())
    if isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise ValueError(f"a column is {column!r:.80}: pass a list with one value per row")
    return list(column)


def _value(name: str, row: int, value: Any, depth: int = 0) -> Any:
    """Returns a cell as a plain value; ValueError if it is missing or nested too deeply."""
    if depth > _DEEPEST_VALUE:
        raise ValueError(
            f"row {row}: {name} is nested more than {_DEEPEST_VALUE} deep: pass a string, a number "
            "or a plain list of them"
        )
    if isinstance(value, np.ndarray):
        return _value(name, row, value.item() if value.ndim == 0 else value.tolist(), depth)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"row {row} has no {name} ({value}): fill it in, or remove the row")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"row {row}: {name} is not UTF-8: {error}") from None
    if isinstance(value, Mapping):
        return {key: _value(name, row, item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_value(name, row, item, depth + 1) for item in value]
    return value


def _is_batched(data: tf.data.Dataset) -> bool:
    """Returns whether the elements' strings and numbers have a batch axis of unknown size."""
    specs = tf.nest.flatten(data.element_spec)
    return all(
        isinstance(spec, tf.TensorSpec)
        and spec.shape.rank not in (None, 0)
        and spec.shape[0] is None
        for spec in specs
    )
