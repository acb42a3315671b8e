"""Any number of windows through a model in bounded memory."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

# Of windows that go through the model at once. A server's memory must not grow with the longest
# text that anyone sends: attention alone takes chunk * heads * length^2 numbers.
_SIZE = 32


def in_chunks(
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    rows: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    size: int = _SIZE,
) -> dict[str, Any]:
    """Calls a function on so many rows at a time, and puts its outputs one below the other.

    Args:
        function: takes the tensors of `rows`, fewer rows of them, and returns the tensors of
            `outputs` with as many rows.
        rows: name -> tensor (rows, ...). No rows at all are one call with none.
        outputs: name -> tf.TensorSpec (None, ...) of what is returned.
        size: rows of one call.

    Returns:
        The outputs of all rows.
    """
    num_rows = tf.shape(next(iter(rows.values())))[0]
    num_chunks = tf.maximum(1, -(-num_rows // size))  # rounded up

    def body(index: Any, *arrays: Any) -> tuple[Any, ...]:
        begin = index * size
        found = function({name: value[begin : begin + size] for name, value in rows.items()})
        written = (
            array.write(index, found[name]) for name, array in zip(outputs, arrays, strict=True)
        )
        return index + 1, *written

    arrays = [
        tf.TensorArray(spec.dtype, num_chunks, infer_shape=False, element_shape=spec.shape)
        for spec in outputs.values()
    ]
    _, *filled = tf.while_loop(
        lambda index, *_: index < num_chunks, body, (0, *arrays), parallel_iterations=1
    )
    return {name: array.concat() for name, array in zip(outputs, filled, strict=True)}
