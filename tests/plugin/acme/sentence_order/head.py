"""The head of sentence order: one logit for two sentences."""

import keras

from keras_transformers.models import pooled


def orderer(encoder: keras.Model) -> keras.Model:
    """Adds `order_logits` float32 (batch,): above 0 if the sentences are in their order.

    Lan et al. 2020, ALBERT, section 3.1 (sentence-order prediction).
    """
    dense = keras.layers.Dense(1, dtype="float32", name="order_logits")
    logits = keras.ops.squeeze(dense(pooled(encoder)), axis=-1)  # (batch,)
    return keras.Model(encoder.input, {"order_logits": logits}, name=f"{encoder.name}_orderer")
