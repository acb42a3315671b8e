"""Says whether two sentences are in their order."""

from typing import Any

import keras
import tensorflow as tf

from keras_transformers.tasks import TextPipeline


class SentenceOrderer(TextPipeline):
    """Takes two texts and says whether they are in their order.

    Args:
        model: from `orderer`.
        tokenizer: turns texts into the model's inputs.
        threshold: the probability from which on they are.
        max_sequence_length: maximum tokens in a packed pair.
    """

    task = "acme_sentence_order"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Any,
        *,
        threshold: float = 0.5,
        max_sequence_length: int | None = None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            outputs=("order_logits",),
            max_sequence_length=max_sequence_length,
            pair=True,
        )
        if not 0 < threshold < 1:
            raise ValueError(f"threshold={threshold}: expected a number between 0 and 1")
        self.threshold = threshold

    def decode(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Computes the answer from the model's inputs, in the graph."""
        probability = tf.sigmoid(self.run_model(tokens)["order_logits"])  # (batch,)
        return {"in_order": probability >= self.threshold, "probability": probability}

    def answer_specs(self) -> dict[str, Any]:
        """Returns the outputs of `decode`."""
        return {
            "in_order": tf.TensorSpec([None], tf.bool),
            "probability": tf.TensorSpec([None], tf.float32),
        }

    def config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild this pipeline."""
        return {"threshold": self.threshold, "max_sequence_length": self.max_sequence_length}
