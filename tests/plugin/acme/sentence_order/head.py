"""The head of sentence order: one logit for two sentences."""

import keras


def orderer(encoder: keras.Model) -> keras.Model:
    """Adds `order_logits` float32 (batch,): above 0 if the sentences are in their order.

    Lan et al. 2020, ALBERT, section 3.1 (sentence-order prediction).
    """
    logits = keras.layers.Dense(1, dtype="float32", name="order_logits")(
        encoder.output["pooled_output"]
    )
    logits = keras.ops.squeeze(logits, axis=-1)  # (batch, 1) to (batch,)
    return keras.Model(encoder.input, {"order_logits": logits}, name=f"{encoder.name}_orderer")
