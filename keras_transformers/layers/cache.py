"""Keys and values of positions already decoded, so that each step computes one position only."""

from typing import Any

from keras import ops

KeysValues = tuple[Any, Any]


def empty_cache(rows: Any, num_heads: int, length: int, head_dim: int, dtype: str) -> KeysValues:
    """Room for `length` positions: keys and values, each (rows, heads, length, head_dim) of zeros.

    Length 0 makes a cache that grows by a position a step (`extend_cache` without an index), which
    suits a CPU; a fixed length keeps every shape static, as XLA wants.
    """
    shape = (rows, num_heads, length, head_dim)
    return ops.zeros(shape, dtype=dtype), ops.zeros(shape, dtype=dtype)


def extend_cache(cache: KeysValues, new: KeysValues, index: Any = None) -> tuple[KeysValues, Any]:
    """Adds one position's keys and values.

    Args:
        cache: keys and values, each (rows, heads, length, head_dim).
        new: those of the new position, each (rows, heads, 1, head_dim).
        index: the position to write in a cache of fixed length; None appends.

    Returns:
        The new cache, and the mask of the positions it holds: (1, length), or None when all count.
    """
    if index is None:
        keys, values = (ops.concatenate(pair, axis=2) for pair in zip(cache, new, strict=True))
        return (keys, values), None
    positions = ops.arange(cache[0].shape[2])  # (length,)
    # `where` costs a pass over the cache, like the reordering of beams, and is an op that every
    # runtime has; slice_update is an XLA op on TensorFlow.
    here = ops.reshape(positions == index, (1, 1, -1, 1))
    keys, values = (ops.where(here, n, c) for c, n in zip(cache, new, strict=True))
    return (keys, values), (positions <= index)[None]
