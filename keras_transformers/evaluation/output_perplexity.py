"""Perplexity of a model whose output is its loss, such as `models.elmo.language_model`."""

from typing import Any

import keras

from keras_transformers.evaluation.token_metrics import Perplexity


@keras.saving.register_keras_serializable("keras_transformers")
class OutputPerplexity(Perplexity):
    """exp of the mean of what the model puts out, its cross-entropy token by token, in nats.

    As `Perplexity`, and to be compiled alike, for outputs (batch, length) instead of logits. In
    training a sampled loss is a little low, and so is this; what `evaluate` and validation tell is
    exact.

    Example:
        >>> perplexity = OutputPerplexity()
        >>> losses = keras.ops.log([[2.0, 8.0, 99.0]])
        >>> perplexity.update_state(keras.ops.zeros((1, 3)), losses, [[1.0, 1.0, 0.0]])
        >>> round(float(perplexity.result()), 4)
        4.0
    """

    def _values(self, targets: Any, outputs: Any) -> Any:
        return outputs
