"""Runs layers of one structure as one function of a TensorFlow graph.

A decoder repeats one block, and tracing it takes a hundred times as long as calling what was
traced. TensorFlow also optimizes the function once, and a step of decoding takes less time, since a
small graph is scheduled faster than a large one.
"""

import contextlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras

from keras_transformers.dependencies.private_api import inner_layers
from keras_transformers.layers.scopes import KERNELS, SELECTIONS, WATCHERS
from keras_transformers.layers.tensors import Tensor

__all__: list[str] = []

_MOST_FUNCTIONS = 128
_SHARES: ContextVar[bool] = ContextVar("shares", default=False)


class _Function(NamedTuple):
    """A traced call.

    Attributes:
        run: takes the tensors of the arguments, and the values of the weights that it reads.
        read: the indices of these weights among those of a layer and its kernels.
    """

    run: Callable[[list[Tensor], list[Tensor]], Any]
    read: Sequence[int]


# What a call traces -> the function, or None if it cannot be shared. It has no weights of its own,
# so all models share it, the last ones used longest.
_functions: OrderedDict[Any, _Function | None] = OrderedDict()


@contextlib.contextmanager
def shared_calls() -> Iterator[None]:
    """Lets blocks of one structure share the graph of a call while a graph is traced.

    The graph is traced in less time. It is for inference: each call in it would get a gradient of
    its own.
    """
    token = _SHARES.set(True)
    try:
        yield
    finally:
        _SHARES.reset(token)


def calls_are_shared() -> bool:
    """Returns whether this is inside `shared_calls`."""
    return _SHARES.get()


def shared_call(layer: keras.layers.Layer, method: Callable[..., Any], **arguments: Any) -> Any:
    """Returns `method(**arguments)`; in a TensorFlow graph, from a function traced once.

    All layers with the same configuration and weights of the same shapes use it, each with its own
    weights, if their kernels have a `structure`; see `scopes.KERNELS`.

    Args:
        layer: has the weights and inner layers that the method uses.
        method: of the layer, in inference, without random numbers.
        **arguments: structures of tensors and hashable values.
    """
    if keras.backend.backend() != "tensorflow":
        return method(**arguments)
    import tensorflow as tf

    if tf.executing_eagerly():
        return method(**arguments)
    layers = [layer, *inner_layers(layer)]
    kernels: list[Any] = [KERNELS.of(inner) for inner in layers]
    watched = any(WATCHERS.of(inner) is not None for inner in layers)
    if watched or SELECTIONS.of(layer) is not None:
        return method(**arguments)
    if not all(k is None or hasattr(k, "structure") for k in kernels):
        return method(**arguments)
    weights = [*layer.weights, *(w for k in kernels if k is not None for w in k.variables)]
    leaves = tf.nest.flatten(arguments)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    key = (
        *(method.__qualname__, tuple(arguments), _structure(layer)),
        tuple(None if kernel is None else kernel.structure for kernel in kernels),
        tuple((tuple(weight.shape), str(weight.dtype)) for weight in weights),
        tuple((str(x.shape), x.dtype) if tf.is_tensor(x) else x for x in leaves),
    )

    def traced(read: Sequence[int]) -> Any:
        def run(tensors: list[Tensor], values: list[Tensor]) -> Any:
            remaining = iter(tensors)
            inputs = [next(remaining) if tf.is_tensor(leaf) else leaf for leaf in leaves]
            mapped = [(weights[index], value) for index, value in zip(read, values, strict=True)]
            with keras.StatelessScope(state_mapping=mapped):
                return method(**tf.nest.pack_sequence_as(arguments, inputs))

        inputs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        values = [tf.TensorSpec(weights[index].shape, weights[index].dtype) for index in read]
        # Inlining would undo all of it.
        options = {"autograph": False, "experimental_attributes": {"_noinline": True}}
        with tf.init_scope(), tf.device(None):
            return tf.function(run, **options).get_concrete_function(inputs, values)

    if key not in _functions:
        whole = traced(range(len(weights)))
        values = whole.inputs[len(tensors) :]
        read = [index for index, value in enumerate(values) if value.consumers()]
        # What is captured belongs to this layer alone.
        _functions[key] = None if whole.captured_inputs else _Function(traced(read), read)
        if len(_functions) > _MOST_FUNCTIONS:
            _functions.popitem(last=False)
    _functions.move_to_end(key)
    function = _functions[key]
    if function is None:
        return method(**arguments)
    return function.run(tensors, [tf.convert_to_tensor(weights[i].value) for i in function.read])


def _structure(layer: keras.layers.Layer) -> str:
    """Returns what layers have in common that compute the same from the same weights."""
    return json.dumps(_unnamed(keras.saving.serialize_keras_object(layer)), default=repr)


def _unnamed(config: Any) -> Any:
    """Returns a configuration without what differs from layer to layer."""
    if isinstance(config, dict):
        return {
            key: _unnamed(value)
            for key, value in config.items()
            if key != "name" and not key.endswith("initializer")
        }
    return [_unnamed(value) for value in config] if isinstance(config, list | tuple) else config
