"""Says in types of Python what the cells of a column are, and in those of other libraries."""

import dataclasses
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, TypeAlias, get_args, get_type_hints

import numpy as np
import tensorflow as tf

__all__ = ["Kind"]

# str, int, float, bool or np.float32; a list of a kind, such as list[str]; or a dataclass of kinds.
Kind: TypeAlias = Any


def kind_of(spec: tf.TensorSpec) -> Kind:
    """Returns the kind of the rows of a tensor (batch, ...).

    >>> kind_of(tf.TensorSpec([None, 3], tf.float32)), kind_of(tf.TensorSpec([None], tf.string))
    (list[float], <class 'str'>)
    """
    dtype: Any = spec.dtype
    kind: Kind = str
    if dtype.is_bool:
        kind = bool
    elif dtype.is_integer:
        kind = int
    elif dtype.is_floating:
        kind = float
    for _ in spec.shape[1:]:
        kind = list[kind]
    return kind


def is_scalar(kind: Kind) -> bool:
    """Returns whether cells of a kind are single values."""
    return not get_args(kind) and not dataclasses.is_dataclass(kind)


def fields_of(kind: Kind) -> dict[str, Kind]:
    """Returns the fields of a kind that is a dataclass, as if all were set; empty for others."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {name: _set(of) for name, of in get_type_hints(kind).items()}


def arrow_type(kind: Kind, arrow: Any) -> Any:
    """Returns the type of a column in Arrow.

    Args:
        kind: the kind of its cells.
        arrow: the module pyarrow.
    """
    scalars = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        np.float32: arrow.float32(),
    }

    def struct(fields: Mapping[str, Any]) -> Any:
        return arrow.struct(list(fields.items()))

    return _type(kind, scalars, arrow.list_, struct)


def polars_type(kind: Kind, polars: Any) -> Any:
    """Returns the type of a column in polars.

    Args:
        kind: the kind of its cells.
        polars: the module polars.
    """
    scalars = {
        str: polars.String,
        int: polars.Int64,
        float: polars.Float64,
        bool: polars.Boolean,
        np.float32: polars.Float32,
    }
    return _type(kind, scalars, polars.List, polars.Struct)


def _type(
    kind: Kind,
    scalars: Mapping[Any, Any],
    list_of: Callable[[Any], Any],
    struct: Callable[[Mapping[str, Any]], Any],
) -> Any:
    if parts := get_args(kind):
        return list_of(_type(parts[0], scalars, list_of, struct))
    if fields := fields_of(kind):
        return struct({n: _type(k, scalars, list_of, struct) for n, k in fields.items()})
    return scalars[kind]


def _set(kind: Any) -> Kind:
    """Returns the kind that a type allows besides None."""
    if not isinstance(kind, UnionType):
        return kind
    (of,) = (part for part in get_args(kind) if part is not type(None))
    return of


def plain(value: Any) -> Any:
    """Returns a cell as JSON values: arrays and dataclasses become lists and mappings."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value
