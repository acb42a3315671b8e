"""Measures ELECTRA's discriminator, which judges whether each token was replaced.

They read the output `replaced` of `heads.electra_pretrainer`, with the original tokens as targets,
and belong in `weighted_metrics`: in plain `metrics` Keras ignores weights, and padding would count.
"""

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.evaluation.perplexity import TokenMean
from keras_transformers.training.losses import replaced_labels_and_logits

__all__ = [
    "ReplacedTokenAccuracy",
    "ReplacedTokenPrecision",
    "ReplacedTokenRecall",
    "ReplacedTokenShare",
]

_PACKAGE = "keras_transformers"


@keras.saving.register_keras_serializable(_PACKAGE)
class ReplacedTokenShare(TokenMean):
    """Computes the share of replaced tokens; the rest is the accuracy of calling none replaced."""

    def __init__(self, name: str = "share", dtype: str | None = None) -> None:
        super().__init__(name, dtype)

    def _values(self, targets: Tensor, judged: Tensor) -> Tensor:
        return replaced_labels_and_logits(targets, judged)[0]


@keras.saving.register_keras_serializable(_PACKAGE)
class ReplacedTokenAccuracy(TokenMean):
    """Computes the share of tokens that were judged correctly."""

    def __init__(self, name: str = "accuracy", dtype: str | None = None) -> None:
        super().__init__(name, dtype)

    def _values(self, targets: Tensor, judged: Tensor) -> Tensor:
        labels, logits = replaced_labels_and_logits(targets, judged)
        return ops.equal(labels > 0, logits > 0)


class _OfJudgements(keras.metrics.Metric):
    """Passes labels and probabilities on to the next class."""

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds tokens.

        Args:
            y_true: the original tokens, ids (batch, length).
            y_pred: judgements (batch, length, 2).
            sample_weight: (batch, length), 0 at padding; None means 1 everywhere.
        """
        labels, logits = replaced_labels_and_logits(y_true, ops.convert_to_tensor(y_pred))
        super().update_state(labels, ops.sigmoid(logits), sample_weight)


@keras.saving.register_keras_serializable(_PACKAGE)
class ReplacedTokenPrecision(_OfJudgements, keras.metrics.Precision):
    """Computes the precision of "replaced"; see `keras.metrics.Precision` for the arguments."""


@keras.saving.register_keras_serializable(_PACKAGE)
class ReplacedTokenRecall(_OfJudgements, keras.metrics.Recall):
    """Computes the recall of replaced tokens; see `keras.metrics.Recall` for the arguments."""
