"""Labelled texts for a classifier that goes on modelling language meanwhile."""

from typing import Any

import tensorflow as tf

from keras_transformers.data.text.classification import TextBatches

__all__ = ["NextTokenTextBatches"]


class NextTokenTextBatches(TextBatches):
    """What a `models.gpt.classifier` learns from; arguments and errors as for `TextBatches`.

    Batches of (inputs, targets, weights): `token_ids` and `padding_mask`; `logits`, the label ids
    (batch,), and `token_logits`, the tokens that follow (batch, length); weights by the same names,
    0 where no real token follows.
    """

    def batch(self, indices: tf.Tensor) -> Any:
        """The examples at `indices` int32 (batch,), in the graph."""
        found = super().batch(indices)
        if not isinstance(found, tuple):  # without labels there is nothing to learn
            return found
        inputs, targets = found
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        following = tf.pad(token_ids[:, 1:], [[0, 0], [0, 1]])
        weights = tf.cast(tf.pad(mask[:, 1:], [[0, 0], [0, 1]]), tf.float32)
        return (
            inputs,
            targets | {"token_logits": following},
            {"logits": tf.ones_like(targets["logits"], tf.float32), "token_logits": weights},
        )
