"""Bags of many token ids out of very many: rows looked up one by one, and their mean."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE


@keras.saving.register_keras_serializable(PACKAGE)
class RowEmbedding(keras.layers.Embedding):
    """`keras.layers.Embedding` for millions of rows: a step touches those that it looks up.

    With TensorFlow, Keras looks rows up in the value of the whole matrix. Once an optimizer moves
    single rows in place, TensorFlow copies the matrix for every such value. This layer asks the
    variable for its rows instead, and there is no copy. The gradient has one slice for each id
    that was looked up (`tf.IndexedSlices`); `keras.optimizers.SGD` without momentum moves those
    rows alone. Optimizers with moments, and all on other backends, go through the whole matrix.
    """

    def call(self, inputs: Any) -> Any:
        """Maps ids (...) to vectors (..., output_dim)."""
        matrix = self.embeddings.value
        if hasattr(matrix, "sparse_read"):  # a variable of TensorFlow; cast or traced, a tensor
            return matrix.sparse_read(inputs)
        return ops.take(matrix, inputs, axis=0)


@keras.saving.register_keras_serializable(PACKAGE)
class MeanOfTokens(keras.layers.Layer):
    """The mean of the vectors of real tokens; zeros where there are none."""

    def call(self, vectors: Any, padding_mask: Any) -> Any:
        """Maps (batch, length, width), with the mask (batch, length), to (batch, width)."""
        is_real = ops.cast(padding_mask, "float32")
        shares = is_real / ops.maximum(ops.sum(is_real, axis=1, keepdims=True), 1.0)
        shares = ops.cast(shares, vectors.dtype)  # not before: bfloat16 counts to 256
        return ops.squeeze(ops.matmul(shares[:, None], vectors), axis=1)
