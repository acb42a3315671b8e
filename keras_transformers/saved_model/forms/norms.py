"""Layer norms as the one kernel that oneDNN has for them, or in as few steps as there can be."""

from collections.abc import Callable, Iterable

import keras
import tensorflow as tf
from keras.layers import Layer, LayerNormalization

from keras_transformers.dependencies.untyped import Tensor


def fused_norms(
    layers: Iterable[Layer], norm: Callable[[LayerNormalization, Tensor], Tensor] | None = None
) -> dict[Layer, Callable[[Tensor], Tensor]]:
    """Returns the kernel of each layer norm in float32 over the last axis.

    Args:
        layers: of a model.
        norm: computes a layer norm, `layer_norm` or `short_norm`; by default the first.
    """
    return {
        layer: _NormKernel(layer, norm or layer_norm)
        for layer in layers
        if type(layer) is LayerNormalization
        and layer.axis in ([-1], -1)
        and layer.center
        and layer.scale
        and layer.compute_dtype == "float32"
    }


class _NormKernel:
    """Computes a layer norm by a function; `structure` and `variables` as in `scopes.KERNELS`."""

    variables = ()  # besides the layer's own

    def __init__(
        self, layer: LayerNormalization, norm: Callable[[LayerNormalization, Tensor], Tensor]
    ) -> None:
        self._layer, self._norm = layer, norm
        self.structure = (type(self), norm)

    def __call__(self, inputs: Tensor) -> Tensor:
        return self._norm(self._layer, inputs)


def layer_norm(layer: LayerNormalization, inputs: Tensor) -> Tensor:
    """Computes a layer norm, for rows in the form that TensorFlow replaces with oneDNN's kernel.

    A batch norm in training mode, whose channels are the rows, normalizes each row. Where
    TensorFlow has no such kernel it runs the batch norm, with the same numbers.

    Args:
        layer: over the last axis, with gain and shift.
        inputs: (rows, features), or with more axes, for which the layer's own form is faster.
    """
    if len(inputs.shape) != 2:
        return layer(inputs)
    with tf.name_scope(layer.name):
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
        gain, shift = (keras.ops.convert_to_tensor(weight) for weight in (layer.gamma, layer.beta))
        return tf.reshape(normalized, shape) * gain + shift


def short_norm(layer: LayerNormalization, inputs: Tensor) -> Tensor:
    """Computes a layer norm in nine steps; Keras takes thirteen.

    That is faster than a batch norm without oneDNN, and with it for few rows.

    Args:
        layer: over the last axis, with gain and shift.
        inputs: (..., features).
    """
    with tf.name_scope(layer.name):
        gain, shift = (keras.ops.convert_to_tensor(weight) for weight in (layer.gamma, layer.beta))
        centered = inputs - tf.reduce_mean(inputs, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        return centered * tf.math.rsqrt(variance + layer.epsilon) * gain + shift
