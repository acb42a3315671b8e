"""Batches labelled texts for fine-tuning GPT with an auxiliary language-modelling loss."""

from typing import Any

import tensorflow as tf

from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.classification import TextBatches
from keras_transformers.data.text.examples import Examples

__all__ = ["NextTokenTextBatches"]


class NextTokenTextBatches(TextBatches):
    """Batches of (inputs, targets, weights) for `heads.causal_classifier`; see `TextBatches`.

    Inputs are `token_ids` and `padding_mask`. Targets are `logits`, the label ids (batch,), and
    `token_logits`, the next tokens (batch, length). Weights have the names of the targets; they are
    0 where no real token follows.
    """

    def __init__(self, examples: Examples, pipeline: Any, **options: Any) -> None:
        if getattr(pipeline, "reads_windows", False):
            raise ValueError(
                "long_texts='windows': the language model's loss is of one window: set "
                "long_texts='cut', or train with TextBatches"
            )
        super().__init__(examples, pipeline, **options)

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the examples at `indices`, int32 (batch,); runs in graphs."""
        batch = super().batch(indices)
        if not isinstance(batch, tuple):  # no labels, inputs only
            return batch
        inputs, targets = batch
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        following = tf.pad(token_ids[:, 1:], [[0, 0], [0, 1]])
        weights = tf.cast(tf.pad(mask[:, 1:], [[0, 0], [0, 1]]), tf.float32)
        return (
            inputs,
            targets | {"token_logits": following},
            {"logits": tf.ones_like(targets["logits"], tf.float32), "token_logits": weights},
        )
