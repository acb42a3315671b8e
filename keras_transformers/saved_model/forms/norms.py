"""Layer norms as the one kernel that oneDNN has for them."""

from collections.abc import Callable, Iterable

import keras
import tensorflow as tf
from keras.layers import Layer, LayerNormalization

from keras_transformers.dependencies.untyped import Tensor


def fused_norms(layers: Iterable[Layer]) -> dict[Layer, Callable[[Tensor], Tensor]]:
    """Returns the kernel of each layer norm in float32 over the last axis: one step, not nine."""
    return {
        layer: _FusedNorm(layer)
        for layer in layers
        if type(layer) is LayerNormalization
        and layer.axis in ([-1], -1)
        and layer.center
        and layer.scale
        and layer.compute_dtype == "float32"
    }


class _FusedNorm:
    """Computes a layer norm by `layer_norm`; `structure` and `variables` as in `scopes.KERNELS`."""

    variables = ()  # besides the layer's own

    def __init__(self, layer: LayerNormalization) -> None:
        self._layer = layer
        self.structure = type(self)

    def __call__(self, inputs: Tensor) -> Tensor:
        return layer_norm(self._layer, inputs)


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
