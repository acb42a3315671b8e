"""Reads columns of data in memory: lists, data frames, Arrow tables, `datasets`, `tf.data`.

No library is imported: `dependencies.tables` recognizes their types.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import tables
from keras_transformers.files.surrogates import half_of_a_pair

__all__ = ["Wanted", "columns_of"]

NO_ROWS = "the data has no rows: pass at least one, or check what selected them"
_DEEPEST_VALUE = 20  # of lists and mappings in a cell; the answers of a question take three


class RowError(ValueError):
    """A row of data in memory cannot be read.

    Attributes:
        row: its number, from 0.
        reason: the rest of the message.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row, self.reason = row, reason


class MissingColumnError(ValueError):
    """Data has no column that a task reads."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A column that a task reads.

    Attributes:
        name: its name here, such as "text" or "label".
        usual: its names in public data sets.
        required: whether data must have it; required columns come first.
        nullable: whether its cells, and values in them, may be missing; they are then None.
    """

    name: str
    usual: tuple[str, ...] = ()
    required: bool = True
    nullable: bool = False


# The names in public data sets; `Wanted.usual` of the columns that most tasks share.
TEXT = ("sentence", "review", "tweet", "content", "comment", "message", "document", "texts")
TEXT_A = ("sentence1", "premise", "question1", "text_a", "text1", "sentence_A", "query")
TEXT_B = ("sentence2", "hypothesis", "question2", "text2", "sentence_B", "passage", "sentence")
LABEL = ("labels", "sentiment", "category", "class", "target", "topic", "intent", "emotion",
         "gold_label", "coarse_label")  # fmt: skip


def headings(data: Any) -> list[Any]:
    """Returns the names of the columns of data in memory; [] if they have none.

    Of a list of rows, the first row has them.
    """
    if isinstance(data, tf.data.Dataset):
        data = data.element_spec
    elif isinstance(data, list) and data:
        data = data[0]
    if tables.is_table(data):
        return tables.column_names(data)
    return list(data) if isinstance(data, Mapping) else []


def columns_of(
    data: Any,
    wanted: Sequence[Wanted],
    *,
    names: Mapping[str, str] | None = None,
    bad_rows: dict[int, str] | None = None,
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
        bad_rows: gets the number of each row that cannot be read -> what is wrong with it; the
            result leaves these rows out. None raises an error for the first.

    Returns:
        Name in `wanted` -> values. Optional columns that are missing are left out. Bytes become
        strings.

    Raises:
        TypeError: the data has none of these types.
        RowError: a value is missing, a row differs from the others, or a string has half of a
            surrogate pair.
        ValueError: a column is missing, several could be meant, columns differ in length, or there
            are no rows.

    Example:
        >>> columns_of((["a", "b"], [0, 1]), [Wanted("text"), Wanted("label")])
        {'text': ['a', 'b'], 'label': [0, 1]}
        >>> columns_of({"sentence": ["a"]}, [Wanted("text", ("sentence",))])
        {'text': ['a']}
    """
    if not isinstance(names, Mapping | None):
        raise TypeError(
            f"columns={names!r:.80}: pass a mapping from names here to names in the data, such as "
            f"{{{wanted[0].name!r}: '...'}}"
        )
    names = dict(names or {})
    if unknown := sorted(set(names) - {field.name for field in wanted}):
        all_names = ", ".join(field.name for field in wanted)
        raise ValueError(
            f"columns={names}: no column {unknown[0]!r} is read; pass names for {all_names}"
        )
    columns = _chosen(data, wanted, names)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise ValueError(f"the columns differ in length, {counts}: pass one value of each per row")
    if not all(lengths.values()):
        raise ValueError(NO_ROWS)
    bad: dict[int, RowError] = {}
    nullable = {field.name: field.nullable for field in wanted}
    for name, cells in columns.items():
        columns[name] = [
            _value_or_none(name, row, x, bad, nullable[name]) for row, x in enumerate(cells)
        ]
    if bad and bad_rows is None:
        raise bad[min(bad)]
    if bad_rows is not None:
        bad_rows |= {row: bad[row].reason for row in sorted(bad)}
    return {name: [x for row, x in enumerate(v) if row not in bad] for name, v in columns.items()}


def _chosen(data: Any, wanted: Sequence[Wanted], names: Mapping[str, str]) -> dict[str, list[Any]]:
    if isinstance(data, tf.data.Dataset):
        data = elements(data)
    if isinstance(data, tuple):
        return _in_order(data, wanted)
    if isinstance(data, Mapping):
        if splits := [name for name, part in data.items() if tables.is_table(part)]:
            raise ValueError(
                f"the data has the splits {', '.join(map(str, splits))}: pass one of them, such as "
                f"data[{splits[0]!r}]"
            )
        return _named(list(data), lambda name: _list(data[name]), wanted, names)
    if tables.is_table(data):
        columns = tables.column_names(data)
        return _named(columns, lambda name: tables.column(data, name), wanted, names)
    if tables.is_lazy_table(data):
        raise TypeError(
            f"data is a {type(data).__name__}, whose rows are not in memory: pass data.collect() "
            "of a polars frame, or list(data) of a stream of datasets"
        )
    if isinstance(data, Sequence | np.ndarray) and not isinstance(data, str | bytes):
        return _of_rows(list(data), wanted, names)
    raise TypeError(
        f"data is a {type(data).__name__}: pass a tuple of columns, a mapping, a DataFrame, an "
        "Arrow table, a split of datasets, a tf.data.Dataset, a list of rows, or a file's path"
    )


def elements(data: tf.data.Dataset) -> list[Any]:
    """Returns the rows of a `tf.data.Dataset`, in numpy's types.

    Raises:
        ValueError: it is batched, endless or empty.
    """
    if _is_batched(data):
        raise ValueError("the tf.data.Dataset is batched: pass it before batch(), or unbatch()")
    if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the tf.data.Dataset has no end: pass it before repeat(), or take(n)")
    rows = list(data.as_numpy_iterator())
    if not rows:
        raise ValueError(NO_ROWS)
    return rows


def _in_order(data: tuple[Any, ...], wanted: Sequence[Wanted]) -> dict[str, list[Any]]:
    least = sum(field.required for field in wanted)
    if not least <= len(data) <= len(wanted):
        expected = ", ".join(field.name for field in wanted)
        raise ValueError(f"data is a tuple of {len(data)}: pass the columns ({expected})")
    return {field.name: _list(column) for field, column in zip(wanted, data, strict=False)}


def _of_rows(
    rows: list[Any], wanted: Sequence[Wanted], names: Mapping[str, str]
) -> dict[str, list[Any]]:
    if not rows:
        raise ValueError(NO_ROWS)
    if isinstance(rows[0], Mapping):
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise RowError(number, f"{row!r:.80} has no names, as row 0 has")
        keys = list(dict.fromkeys(key for row in rows for key in row))
        return _named(keys, lambda key: _of_key(rows, key), wanted, names)
    if isinstance(rows[0], tuple | list):
        width = len(rows[0])
        for number, row in enumerate(rows):
            if not isinstance(row, tuple | list) or len(row) != width:
                raise RowError(number, f"{row!r:.80}, expected {width} values, as row 0 has")
        return _in_order(tuple(zip(*rows, strict=True)), wanted)
    if len([field for field in wanted if field.required]) > 1:
        expected = ", ".join(field.name for field in wanted)
        raise ValueError(
            f"row 0 of the data is {rows[0]!r:.80}: pass columns or rows of ({expected})"
        )
    return {wanted[0].name: rows}


def _of_key(rows: Sequence[Mapping[Any, Any]], key: Any) -> list[Any]:
    for number, row in enumerate(rows):
        if key not in row:
            raise RowError(
                number, f"no {key!r} among {', '.join(map(str, row))}, unlike other rows"
            )
    return [row[key] for row in rows]


def _named(
    headings: list[Any],
    column: Callable[[Any], list[Any]],
    wanted: Sequence[Wanted],
    names: Mapping[str, str],
) -> dict[str, list[Any]]:
    if not headings:
        expected = ", ".join(field.name for field in wanted if field.required)
        raise ValueError(f"the data has no columns: pass {expected}")
    chosen = {}
    for field in wanted:
        name = names.get(field.name)
        if name is None:
            candidates = (
                [field.name]
                if field.name in headings
                else [x for x in field.usual if x in headings]
            )
            if len(candidates) > 1:
                raise ValueError(
                    f"{' or '.join(candidates)} may be the column {field.name!r}: pass "
                    f"columns={{{field.name!r}: {candidates[0]!r}}}"
                )
            name = candidates[0] if candidates else None
        elif name not in headings:
            raise MissingColumnError(
                f"no column {name!r} among {', '.join(map(str, headings))}: pass one of these in "
                f"columns={{{field.name!r}: '...'}}"
            )
        if name is not None:
            chosen[field.name] = column(name)
        elif field.required:
            raise MissingColumnError(
                f"no column {field.name!r} among {', '.join(map(str, headings))}: pass "
                f"columns={{{field.name!r}: '...'}}"
            )
    return chosen


def _list(column: Any) -> list[Any]:
    if tables.is_table(column):
        columns = ", ".join(map(repr, tables.column_names(column)))
        raise ValueError(f"a column is a table with the columns {columns}: pass one of its columns")
    if (values := tables.listed(column)) is None:
        raise ValueError(f"a column is {column!r:.80}: pass a list with one value per row")
    return values


def _value_or_none(
    name: str, row: int, value: Any, bad: dict[int, RowError], nullable: bool
) -> Any:
    """Returns a cell as a plain value; None, and its first error in `bad`, if it cannot be read."""
    try:
        return _value(name, row, value, nullable)
    except RowError as error:
        bad.setdefault(row, error)
        return None


def _value(name: str, row: int, value: Any, nullable: bool = False, depth: int = 0) -> Any:
    """Returns a cell as a plain value.

    Raises:
        RowError: it is missing or nested too deeply, or its text is not Unicode.
    """
    if depth > _DEEPEST_VALUE:
        raise RowError(
            row,
            f"{name} is nested more than {_DEEPEST_VALUE} deep: pass a string, a number or a plain "
            "list of them",
        )
    if isinstance(value, str):
        if reason := half_of_a_pair(value):
            raise RowError(row, f"{name} has {reason}")
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        return [_value(name, row, item, nullable, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {key: _value(name, row, item, nullable, depth + 1) for key, item in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise RowError(row, f"{name} is not UTF-8: {error}") from None
    if tables.is_missing(value):
        if nullable:
            return None
        raise RowError(row, f"no {name} ({value}): fill it in, or drop the row")
    value = tables.without_tensors(value)
    if isinstance(value, np.generic):
        item = value.item()  # a longdouble stays as it is
        return item if isinstance(item, np.generic) else _value(name, row, item, nullable, depth)
    if isinstance(value, np.ndarray):
        return _value(name, row, value.tolist(), nullable, depth)
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
