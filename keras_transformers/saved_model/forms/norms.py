"""Layer norms as the one kernel that oneDNN has for them."""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf


def fusible_norms(layers: Iterable[keras.layers.Layer]) -> list[keras.layers.Layer]:
    """Returns the layers that `fused` takes: layer norms in float32 over the last axis."""
    return [
        layer
        for layer in layers
        if type(layer) is keras.layers.LayerNormalization
        and layer.axis in ([-1], -1)
        and layer.center
        and layer.scale
        and layer.compute_dtype == "float32"
    ]


@contextlib.contextmanager
def fused(norms: Iterable[keras.layers.Layer]) -> Iterator[None]:
    """Lets TensorFlow compute these layers in one step instead of nine."""
    norms = list(norms)
    for layer in norms:
        layer.call = functools.partial(layer_norm, layer)
    try:
        yield
    finally:
        for layer in norms:
            del layer.call


def layer_norm(layer: keras.layers.LayerNormalization, inputs: Any) -> Any:
    """Computes a layer norm, for rows in the form that TensorFlow replaces with oneDNN's kernel.

    A batch norm in training mode, whose channels are the rows, normalizes each row. Where
    TensorFlow has no such kernel it runs the batch norm, with the same numbers.

    Args:
        layer: over the last axis, with gain and shift.
        inputs: (rows, features), or with more axes, for which the layer's own form is faster.
    """
    if len(inputs.shape) != 2:
        return type(layer).call(layer, inputs)
    shape = tf.shape(inputs)
    none = tf.zeros((0,), tf.float32)
    normalized, *_ = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(inputs, (1, -1, inputs.shape[1], 1)),
        scale=tf.fill(shape[:1], 1.0),
        offset=tf.fill(shape[:1], 0.0),
        mean=none,
        variance=none,
        epsilon=layer.epsilon,
        data_format="NCHW",
        is_training=True,
    )
    gain, shift = (keras.ops.convert_to_tensor(each) for each in (layer.gamma, layer.beta))
    return tf.reshape(normalized, shape) * gain + shift
