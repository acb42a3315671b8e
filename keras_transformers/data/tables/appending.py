"""Adds columns to data in memory: the result has the same type, and a frame keeps its index."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.tables.kinds import (
    Kind,
    arrow_type,
    fields_of,
    is_scalar,
    plain,
    polars_type,
)
from keras_transformers.dependencies import tables

__all__: list[str] = []


def with_columns(data: Any, columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]) -> Any:
    """Returns data in memory with more columns.

    Args:
        data: what `columns_of` takes, except for a `tf.data.Dataset`. Tuples get the columns after
            their own; rows of a single value become tuples.
        columns: name -> a cell per row.
        kinds: name -> the kind of its cells.
    """
    if isinstance(data, tuple):
        return (*data, *columns.values())
    if isinstance(data, Mapping):
        return {**data, **{name: _listed(cells) for name, cells in columns.items()}}
    for library, append in _TABLES.items():
        if tables.is_table_of(data, library):
            return append(data, columns, kinds)
    rows = zip(*columns.values(), strict=True)
    return [_row(row, tuple(columns), cells) for row, cells in zip(data, rows, strict=True)]


def dataset_with_columns(
    spec: Any, rows: Sequence[Any], columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]
) -> tf.data.Dataset:
    """Returns rows of a `tf.data.Dataset` with more columns, as a dataset.

    Args:
        spec: the `element_spec` of the rows.
        rows: the elements.
        columns: name -> a cell per row. A list of mappings becomes a mapping of lists.
        kinds: name -> the kind of its cells.
    """
    names = tuple(columns)
    # What an element has of a ragged tensor without ragged axes is a plain one.
    spec = tf.nest.map_structure(
        lambda of: (
            tf.TensorSpec(of.shape, of.dtype)
            if isinstance(of, tf.RaggedTensorSpec) and not of.ragged_rank
            else of
        ),
        spec,
    )
    signature = _row(spec, names, [_spec(kinds[name]) for name in names])
    tensors = {name: [_tensor(cell, kinds[name]) for cell in columns[name]] for name in names}

    def elements() -> Any:
        for row, *cells in zip(rows, *tensors.values(), strict=True):
            yield _row(row, names, cells)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(rows)))


def _row(row: Any, names: Sequence[str], cells: Sequence[Any]) -> Any:
    if isinstance(row, Mapping):
        return {**row, **dict(zip(names, cells, strict=True))}
    if isinstance(row, list):
        return [*row, *cells]
    return (*row, *cells) if isinstance(row, tuple) else (row, *cells)


def _listed(cells: Sequence[Any]) -> list[Any]:
    return [cell if isinstance(cell, np.ndarray) else plain(cell) for cell in cells]


def _to_pandas(frame: Any, columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]) -> Any:
    cells: dict[str, Any] = {}
    for name, column in columns.items():
        cells[name] = _listed(column)
        if not is_scalar(kinds[name]):  # an array of lists would be a matrix
            cells[name] = np.empty(len(column), object)
            cells[name][:] = _listed(column)
    return frame.assign(**cells)


def _to_polars(frame: Any, columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]) -> Any:
    polars = sys.modules["polars"]
    return frame.with_columns(
        polars.Series(name, plain(list(cells)), dtype=polars_type(kinds[name], polars))
        for name, cells in columns.items()
    )


def arrow_column(cells: Sequence[Any], kind: Kind) -> Any:
    """Returns cells as an Arrow array; the module pyarrow is loaded."""
    arrow = sys.modules["pyarrow"]
    return arrow.array(_listed(cells), arrow_type(kind, arrow))


def _to_arrow(table: Any, columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]) -> Any:
    schema, arrays = table.schema, list(table.columns)
    for name, cells in columns.items():
        arrays.append(arrow_column(cells, kinds[name]))
        schema = schema.append(sys.modules["pyarrow"].field(name, arrays[-1].type))
    return type(table).from_arrays(arrays, schema=schema)


def _to_datasets(
    split: Any, columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]
) -> Any:
    datasets, arrow = sys.modules["datasets"], sys.modules["pyarrow"]
    added = [arrow_column(cells, kinds[name]) for name, cells in columns.items()]
    new = datasets.Dataset(arrow.table(added, names=list(columns)))
    return datasets.concatenate_datasets([split, new], axis=1)


_TABLES = {
    "pandas": _to_pandas,
    "polars": _to_polars,
    "pyarrow": _to_arrow,
    "datasets": _to_datasets,
}


def _spec(kind: Kind) -> Any:
    """Returns the specification of cells in a `tf.data.Dataset`; lists of lists are ragged."""
    depth = 0
    while not (is_scalar(kind) or fields_of(kind)):
        (kind,), depth = kind.__args__, depth + 1
    if fields := fields_of(kind):
        lists: Any = list
        return {name: _spec(lists[of] if depth else of) for name, of in fields.items()}
    dtype = tf.as_dtype({str: tf.string, int: tf.int64, float: tf.float64}.get(kind, kind))
    if depth < 2:
        return tf.TensorSpec([None] * depth, dtype)
    return tf.RaggedTensorSpec([None] * depth, dtype, ragged_rank=depth - 1)


def _tensor(cell: Any, kind: Kind) -> Any:
    """Returns a cell as the tensor that `_spec` specifies."""
    spec = _spec(kind)
    if isinstance(spec, tf.RaggedTensorSpec):
        depth = spec.ragged_rank
        return tf.ragged.constant(plain(cell), spec.dtype, ragged_rank=depth)
    if isinstance(spec, dict):
        rows = plain(cell)
        return {
            name: tf.constant([_unless_none(row[name], field.dtype) for row in rows], field.dtype)
            for name, field in spec.items()
        }
    return tf.constant(cell, spec.dtype, shape=[len(cell)] if spec.shape.rank else [])


def _unless_none(value: Any, dtype: tf.DType) -> Any:
    """Returns a value, or 0, False or "" for None, which tensors cannot hold."""
    return dtype.as_numpy_dtype() if value is None else value
