"""What a task takes from a language model's layers: ELMo's weighted sum, word by word."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE


@keras.saving.register_keras_serializable(PACKAGE)
class ScalarMix(keras.layers.Layer):
    """`gamma * sum of softmax(w)_j * layer_j`, with w and gamma trained by the task.

    Peters et al. 2018, equation 1. At the start all layers count alike and gamma is 1.

    Example:
        >>> ScalarMix()(keras.ops.ones((2, 5, 3, 8))).shape
        TensorShape([2, 5, 8])
    """

    def build(self, input_shape: Any) -> None:
        """Makes a weight a layer, and gamma; in mixed precision too they count as they are."""
        self.weights_before_softmax = self.add_weight(
            name="weights_before_softmax",
            shape=(input_shape[-2],),
            initializer="zeros",
            autocast=False,
        )
        self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones", autocast=False)

    def call(self, layer_outputs: Any) -> Any:
        """Maps (batch, tokens, layers, width) to (batch, tokens, width)."""
        shares = ops.softmax(ops.convert_to_tensor(self.weights_before_softmax), axis=-1)
        factors = ops.cast(shares * self.gamma, layer_outputs.dtype)  # (layers,)
        return ops.sum(layer_outputs * factors[:, None], axis=-2)


@keras.saving.register_keras_serializable(PACKAGE)
class WithoutMarkers(keras.layers.Layer):
    """Vectors of the words alone, the markers of begin and end left out, 0 behind the last word."""

    def call(self, hidden: Any, padding_mask: Any) -> Any:
        """Maps (batch, words + 2, width), with its mask, to (batch, words, width)."""
        # A short row's end marker goes with its padding: word i is real if place i + 2 is.
        return ops.where(padding_mask[:, 2:, None], hidden[:, 1:-1], ops.zeros((), hidden.dtype))


@keras.saving.register_keras_serializable(PACKAGE)
class MeanOfWords(keras.layers.Layer):
    """The mean of the word vectors; zeros for a text without words."""

    def call(self, words: Any, padding_mask: Any) -> Any:
        """Maps (batch, words, width), with the mask of words and markers, to (batch, width)."""
        # In float32: bfloat16 counts to 256.
        count = ops.sum(ops.cast(padding_mask[:, 2:], "float32"), axis=1, keepdims=True)
        mean = ops.sum(ops.cast(words, "float32"), axis=1) / ops.maximum(count, 1.0)
        return ops.cast(mean, words.dtype)
