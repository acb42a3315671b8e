"""Recognizes other libraries' tables, columns and tensors by their types, without importing them.

A value of a library's type exists only once that library is imported, so `sys.modules` has it.
Attributes do not tell: each column of a data frame is one too, under any name.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

# Library -> its tables, and the tables that are not read until they are asked for.
_TABLES = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame",),
    "pyarrow": ("Table", "RecordBatch"),
    "datasets": ("Dataset",),
}
_LAZY_TABLES = {"polars": ("LazyFrame",), "datasets": ("IterableDataset",)}
_LISTS_OF_FEATURES = ("List", "LargeList", "Sequence")


def is_table(value: object) -> bool:
    """Returns whether a value is a pandas, polars or Arrow table, or a split of `datasets`."""
    return _is_one_of(value, _TABLES)


def is_table_of(value: object, library: str) -> bool:
    """Returns whether a value is a table of one library, such as "pandas"."""
    return _is(value, library, *_TABLES[library])


def is_lazy_table(value: object) -> bool:
    """Returns whether a value is a table whose rows are not in memory."""
    return _is_one_of(value, _LAZY_TABLES)


def column_names(table: Any) -> list[Any]:
    """Returns the names of a table's columns, in order."""
    names = table.columns if _is_one_of(table, _FRAMES) else table.column_names
    return list(names)


def parts(table: Any, size: int) -> list[Any]:
    """Returns a table in parts of a number of rows, at least one, without copying them."""
    cut: dict[str, Callable[[int, int], Any]] = {
        "pandas": lambda start, stop: table.iloc[start:stop],
        "polars": lambda start, stop: table[start:stop],
        "pyarrow": lambda start, stop: table.slice(start, stop - start),
        "datasets": lambda start, stop: table.select(range(start, stop)),
    }
    (library,) = (library for library in cut if is_table_of(table, library))
    count = len(table)
    return [cut[library](at, min(at + size, count)) for at in range(0, max(count, 1), size)]


def row_names(table: Any) -> list[Any] | None:
    """Returns the index of a pandas DataFrame; None for other values, whose rows have numbers."""
    return list(table.index) if _is_one_of(table, {"pandas": _TABLES["pandas"]}) else None


def column(table: Any, name: Any) -> list[Any]:
    """Returns the values of a table's column.

    The integers of a `ClassLabel` of `datasets`, also in lists, become the names of their classes.

    Raises:
        ValueError: several columns have this name.
    """
    if (count := column_names(table).count(name)) > 1:
        raise ValueError(f"{count} columns are named {name!r}: rename all but one")
    if _is_one_of(table, {"pyarrow": _TABLES["pyarrow"]}):
        values: list[Any] = table.column(name).to_pylist()
        return values
    cells = listed(table[name])
    assert cells is not None
    if not _is(table, "datasets", "Dataset"):
        return cells
    feature = table.features[name]
    return [_by_name(feature, value) for value in cells]


def listed(values: object) -> list[Any] | None:
    """Returns the values of a column, an array, a tensor or any iterable as a list.

    None for a single value, also a string or a mapping, over which Python could iterate.
    """
    values = without_tensors(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return None
    # The method of the type: attributes of an instance may be named by its user.
    for method in ("to_pylist", "to_list", "tolist"):
        if callable(convert := getattr(type(values), method, None)):
            items = convert(values)
            return items if isinstance(items, list) else None  # of an array without axes
    return list(values)


def without_tensors(value: Any) -> Any:
    """Returns a tensor's content, an array or bytes, and other values unchanged."""
    is_tensor = _is(value, "tensorflow", "Tensor", "RaggedTensor", "Variable")
    return value.numpy() if is_tensor and hasattr(type(value), "numpy") else value


def is_missing(value: object) -> bool:
    """Returns whether a cell has no value: None, NaN, or the NA or NaT of pandas."""
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return True
    pandas = sys.modules.get("pandas")
    return any(value is getattr(pandas, name, None) for name in ("NA", "NaT"))


def _by_name(feature: Any, value: Any) -> Any:
    if _is(feature, "datasets", "ClassLabel"):
        is_class = type(value) is int and 0 <= value < feature.num_classes
        return feature.names[value] if is_class else value
    if _is(feature, "datasets", *_LISTS_OF_FEATURES) and isinstance(value, list):
        return [_by_name(feature.feature, item) for item in value]
    return value


_FRAMES = {library: _TABLES[library] for library in ("pandas", "polars")}


def _is_one_of(value: Any, types: Mapping[str, tuple[str, ...]]) -> bool:
    return any(_is(value, library, *names) for library, names in types.items())


def _is(value: Any, library: str, *names: str) -> bool:
    """Returns whether a value is an instance of one of a library's types."""
    module = sys.modules.get(library)
    types = (getattr(module, name, None) for name in names)
    return isinstance(value, tuple(t for t in types if isinstance(t, type)))
