"""What a block of code hands in to layers: kernels that compute them, functions that watch them.

Nothing is set on the layers. As with Keras' own scopes, only the thread that runs the block sees
it: exports of one model in two threads, and calls of it in a third, do not see one another.
"""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from keras_transformers.layers.tensors import Tensor

__all__: list[str] = []

Value = TypeVar("Value")


class Scope(Generic[Value]):
    """Values of objects, such as layers, inside a `with` block.

    Args:
        name: says in a debugger what the values are.

    Example:
        >>> widths: Scope[int] = Scope("widths")
        >>> with widths.use({"hidden": 64}):
        ...     widths.of("hidden"), widths.of("inner")
        (64, None)
        >>> widths.of("hidden") is None
        True
    """

    def __init__(self, name: str) -> None:
        nothing: Mapping[Hashable, Value] = MappingProxyType({})
        self._values = ContextVar(name, default=nothing)

    def of(self, key: Hashable) -> Value | None:
        """Returns an object's value in the innermost block around the caller, or None."""
        return self._values.get().get(key)

    @contextlib.contextmanager
    def use(self, values: Mapping[Any, Value]) -> Iterator[None]:
        """Makes these the values inside the block; those of a block around it are out of sight."""
        token = self._values.set(values)
        try:
            yield
        finally:
            self._values.reset(token)


# What computes a layer in its stead, from the same arguments; but for a `RowDense` from rows (rows,
# features), and for an attention its queries, keys and values alone, as `layouts.joined_product`.
# Layers share the graph of a call, see `shared.shared_call`, if their kernels have `structure`, a
# hashable value that is equal for kernels that compute the same from their `variables`.
KERNELS: Scope[Callable[..., Any]] = Scope("kernels")


class Selection(NamedTuple):
    """The positions of each row whose vectors a head reads.

    Attributes:
        first: whether it reads the first.
        positions: the others that it reads, int32 (batch, n); None for no others.
    """

    first: bool
    positions: Tensor = None

    @property
    def size(self) -> int | None:
        """How many positions it has; None if that is not known yet."""
        if self.positions is None:
            return int(self.first)
        others: int | None = self.positions.shape[1]
        return None if others is None else int(self.first) + others


# What a block is to compute alone, and from what a `GatherPositions` then takes its positions:
# vectors (batch, selected, hidden), the first position before the others.
SELECTIONS: Scope[Selection] = Scope("selections")


class Attended(NamedTuple):
    """What an attention computed, as it computed it; recurrent decoders have probabilities alone.

    Attributes:
        probabilities: (batch, heads, query, key), before dropout.
        query: (batch, heads, query, head_dim), with its norm and rotation, before it is scaled.
        key: (batch, key heads, key, head_dim), with its norm and rotation.
        value: (batch, key heads, key, head_dim).
        scale: the factor on the products of queries and keys, mostly 1 / sqrt(head_dim).
        bias: what is added to them, (batch or 1, heads or 1, query, key), or None.
        scores: the sum, (batch, heads, query, key); `masks.MASKED_SCORE` where a query may not
            attend.
        context: the values weighted by the probabilities, (batch, heads, query, head_dim).
    """

    probabilities: Tensor
    query: Tensor = None
    key: Tensor = None
    value: Tensor = None
    scale: float = 1.0
    bias: Tensor = None
    scores: Tensor = None
    context: Tensor = None


# Runs a functional model in a way that has gradients, from its inputs by name and a function that
# returns what to call instead of a layer; `private_api.run_through_graph`, where there is none.
DIFFERENTIABLE: Scope[Callable[..., Any]] = Scope("differentiable")

# Called with what a layer's attention computes, whenever it computes some.
WATCHERS: Scope[Callable[[Attended], None]] = Scope("watchers")
